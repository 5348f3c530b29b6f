#include "data/csv_file.h"

#include "base/error.h"
#include "data/open_records.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;

namespace {

data::CsvFile open(const std::string& text, char separator = ',') {
  return data::CsvFile(data::FileBytes(text, "rows.csv"), separator);
}

}  // namespace

TEST_CASE("CSV fields in quotes hold separators, newlines and quotes, and errors name the file's lines") {
  const data::CsvFile file = open("\xEF\xBB\xBFprompt,completion\r\n\"a, \"\"b\"\"\r\nc\",\"\"\r\n\r\nd e,f");
  REQUIRE(file.size() == 2);
  CHECK(file.parse(0).dump() == R"({"prompt":"a, \"b\"\r\nc","completion":""})");
  CHECK(file.parse(1).dump() == R"({"prompt":"d e","completion":"f"})");
  CHECK(file.line(0) == 2);
  CHECK(file.line(1) == 5);
  CHECK(file.where(1) == "[data] line 5 of rows.csv");
}

TEST_CASE("TSV is the same with tabs, and its commas are text") {
  CHECK(open("text\tlabel\na, b\t7\n", '\t').parse(0).dump() == R"({"text":"a, b","label":"7"})");
  CHECK(open("text\n\"\"\n").parse(0).dump() == R"({"text":""})");
}

TEST_CASE("a CSV file's first row says what separates its fields") {
  CHECK(data::csv_separator("prompt,completion\n1;2;3,4\n") == ',');
  CHECK(data::csv_separator("\r\nprompt;completion\r\na, b;c\r\n") == ';');
  CHECK(data::csv_separator("prompt\tcompletion\na\tb\n") == '\t');
  CHECK(data::csv_separator("\"a,\n\"\"b\";c\n1;2\n") == ';');
  CHECK(data::csv_separator("a;b,c\n1;2,3\n") == ',');
  CHECK(data::csv_separator("prompt|completion\na|b\n") == '|');
  CHECK(data::csv_separator("a|b;c\n1|2;3\n") == ';');
  CHECK(data::csv_separator("text\na;b\n") == ',');
  CHECK(data::csv_separator("") == ',');
  const auto rows = data::open_record_file(
      data::FileBytes("instruction;output\nadd 1,5 and 2;\"3,5; or so\"\n", "rows.csv"));
  CHECK(rows->parse(0).dump() == R"({"instruction":"add 1,5 and 2","output":"3,5; or so"})");
}

TEST_CASE("a first column without a name is an index") {
  CHECK(open(",prompt\n0,a\n").parse(0).dump() == R"({"Unnamed: 0":"0","prompt":"a"})");
  CHECK_THROWS_WITH(open(",prompt,\n0,a,b\n"),
                    Contains("one without a name") && Contains("into the first row"));
}

TEST_CASE("CSV that isn't well-formed is an error with its line") {
  CHECK_THROWS_WITH(open("a,b\n1,2\n3,\"4\n5,6\n"),
                    Contains("line 3 of rows.csv") && Contains("never closed"));
  CHECK_THROWS_WITH(open("a,b\n1,\"2\"x\n"), Contains("line 2") && Contains("behind field 2, found 'x'"));
  CHECK_THROWS_WITH(open("a,b\n1,2\"x\"\n"), Contains("line 2") && Contains("found '\"'"));
  CHECK_THROWS_WITH(open("a,b\n1,2,3\n"),
                    Contains("line 2") && Contains("expected 2 fields") && Contains("got 3"));
  CHECK_THROWS_WITH(open("a,b\n\"1\n2\",x\n3\n"), Contains("line 4") && Contains("got 1"));
  CHECK_THROWS_WITH(open("a,b,a\n1,2,3\n"), Contains("line 1") && Contains("'a' twice"));
  CHECK_THROWS_WITH(open("a,,b\n1,2,3\n"), Contains("one without a name"));
  CHECK_THROWS_WITH(open("a,b\n"), Contains("no row"));
  CHECK_THROWS_WITH(open("a\n1\rx\n"), Contains("line 2"));
  CHECK_THROWS_WITH(open(std::string("a\nb\nc\0d\n", 8)), Contains("line 3") && Contains("NUL byte"));
}
