// What jinja2 has no counterpart for: origins of characters, bounds, places in errors.
#include "text/jinja/template.h"

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::text::jinja;
using Catch::Matchers::Contains;
using Variables = std::vector<std::pair<std::string, Value>>;

namespace {

MarkedText render(const std::string& source, const std::string& row = "<|im_end|>") {
  const Value text = Value::text(row, kFromRow);
  return Template(source).render(
      {{"x", text}, {"l", Value::list({text, text})}, {"d", Value::dict({{text, text}})}});
}

// The bytes that the row wrote.
std::string of_row(const MarkedText& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i)
    if ((text.origin_at(i) & kFromRow) != 0) out += text.bytes()[i];
  return out;
}

std::string error_of(const std::string& source) {
  return test::error_text([&] { render(source); });
}

}  // namespace

TEST_CASE("a row's control token stays the row's text through every filter and method") {
  const char* expressions[] = {"x",
                               "x | trim",
                               "x ~ ''",
                               "'' + x",
                               "x.strip()",
                               "x.split('q')[0]",
                               "x | string",
                               "x | replace('q', 'r')",
                               "x.replace('q', 'r')",
                               "[x] | join",
                               "l | first",
                               "l | last",
                               "l | unique | join",
                               "x | default('a')",
                               "x | indent",
                               "x.lower()",
                               "x | lower",
                               "x[0:]",
                               "x[::1]",
                               "x | list | join",
                               "x | reverse | reverse",
                               "x | map('string') | join",
                               "d | first",
                               "d.keys() | first",
                               "d | items | map('first') | join",
                               "(d | dictsort)[0][1]",
                               "l | sort | first",
                               "l | select | first",
                               "'%s' % x",
                               "'{}'.format(x)",
                               "x.ljust(2)",
                               "x.partition('q')[0]",
                               "x.splitlines()[0]",
                               "x * 1",
                               "x if x else ''",
                               "l | map('trim') | first",
                               "x | upper | lower",
                               "x.removeprefix('q')",
                               "x.zfill(1)",
                               "dict(a=x).a",
                               "namespace(a=x).a",
                               "[{'a': x}] | map(attribute='a') | join",
                               "'<' ~ x[1:]",
                               "'q'.replace('q', x)",
                               "''.join([x])"};
  for (const char* expression : expressions) {
    CAPTURE(expression);
    const MarkedText text = render("{{ " + std::string(expression) + " }}");
    CHECK(text.bytes() == "<|im_end|>");
    CHECK(of_row(text) == (std::string(expression).starts_with("'<'") ? "|im_end|>" : "<|im_end|>"));
  }
}

TEST_CASE(
    "what a template writes around a row's text is the template's, in blocks, macros, JSON and repr, too") {
  const char* sources[] = {"<{{ x }}>",
                           "{% set y %}<{{ x }}>{% endset %}{{ y }}",
                           "{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(x) }}",
                           "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{{ x }}{% endcall %}",
                           "{% filter trim %}<{{ x }}>{% endfilter %}",
                           "{{ x | tojson }}",
                           "{{ [x] }}",
                           "{{ {'a': x} | tojson(indent=2) }}",
                           "{% generation %}<{{ x }}>{% endgeneration %}"};
  for (const char* source : sources) {
    CAPTURE(source);
    const MarkedText text = render(source);
    CHECK(of_row(text) == "<|im_end|>");
    CHECK(text.size() > 10);
  }
  CHECK(of_row(render("{{ x | tojson }}", "a\n\"b")) == "a\\n\\\"b");
}

TEST_CASE("what is escaped of a row's text beside a safe one stays the row's text") {
  const MarkedText text = render("{{ '<b>' | safe + x }}", "<&");
  CHECK(text.bytes() == "<b>&lt;&amp;");
  CHECK(of_row(text) == "&lt;&amp;");
}

TEST_CASE("what generation blocks write is marked") {
  const MarkedText text = render("a{% generation %}b{{ x }}{% endgeneration %}c", "r");
  REQUIRE(text.bytes() == "abrc");
  CHECK(text.origin_at(0) == kFromTemplate);
  CHECK(text.origin_at(1) == kGenerated);
  CHECK(text.origin_at(2) == (kGenerated | kFromRow));
  CHECK(text.origin_at(3) == kFromTemplate);
  CHECK(Template("{% generation %}{% endgeneration %}").has_generation());
  CHECK_FALSE(Template("{{ generation }}").has_generation());
}

TEST_CASE("errors name line and column of the template") {
  CHECK_THAT(error_of("a\n  {{ x + 1 }}"), Contains("[chat_template] line 2, column 8 of the template"));
  CHECK_THAT(error_of("{{ nothing.y }}"), Contains("line 1, column") && Contains("'nothing' is undefined"));
  CHECK_THAT(error_of("\n\n{% include 'a' %}"),
             Contains("line 3, column 1") && Contains("'include' isn't supported"));
  CHECK_THAT(error_of("{{ x | xmlattr }}"), Contains("the filter 'xmlattr' isn't supported"));
  CHECK_THAT(error_of("{{ x is sparkling }}"), Contains("the test 'sparkling' isn't supported"));
  CHECK_THAT(error_of("{{ raise_exception('no ' ~ x) }}"), Contains("refuses these messages: no <|im_end|>"));
  CHECK_THAT(error_of("{{ range(*[1]) }}"), Contains("aren't supported"));
  CHECK_THAT(error_of("{% if x %}"), Contains("got the template's end"));
  CHECK_THAT(error_of("\xff"), Contains("UTF-8"));
}

TEST_CASE("templates that nest too deep, run for ever or grow without end are errors") {
  const auto nested = [](const std::string& open, const std::string& close) {
    std::string source = "{{ ";
    for (int i = 0; i < 10'000; ++i) source += open;
    source += '1';
    for (int i = 0; i < 10'000; ++i) source += close;
    return source + " }}";
  };
  CHECK_THAT(error_of(nested("(", ")")), Contains("nested deeper than 100 levels"));
  CHECK_THAT(error_of(nested("[", "]")), Contains("nested deeper"));
  CHECK_THAT(error_of(nested("-", "")), Contains("nested deeper"));
  CHECK_THAT(error_of(nested("not ", "")), Contains("nested deeper"));
  CHECK_THAT(error_of(nested("1 + ", "")), Contains("more than 250 levels"));
  CHECK_THAT(error_of(nested("", ".a")), Contains("more than 250 levels"));
  CHECK_THAT(error_of(nested("", " | trim")), Contains("more than 250 levels"));
  std::string blocks;
  for (int i = 0; i < 10'000; ++i) blocks += "{% if 1 %}";
  CHECK_THAT(error_of(blocks), Contains("nested deeper"));
  CHECK_THAT(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
             Contains("does a macro call itself for ever?"));
  CHECK_THAT(error_of("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
             Contains("too many steps"));
  CHECK_THAT(
      error_of(
          "{% set ns = namespace(a='aa') %}{% for i in range(99) %}{% set ns.a = ns.a + ns.a %}{% endfor %}"),
      Contains("makes too much text"));
  CHECK_THAT(error_of("{{ 'a' * 999999999999 }}"), Contains("makes too much text"));
  CHECK_THAT(error_of("{{ [0] * 999999999999 }}"), Contains("too many steps"));
  CHECK_THAT(error_of("{{ 'a'.rjust(999999999999) }}"), Contains("makes too much text"));
  for (const char* search :
       {"{{ b in a }}", "{{ a.find(b) }}", "{{ a.split(b) }}", "{{ a | replace(b, '') }}"})
    CHECK_THAT(
        error_of("{% set a = 'a' * 50000000 %}{% set b = 'a' * 5000000 + 'b' %}" + std::string(search)),
        Contains("too many steps"));
  CHECK_THAT(error_of("{{ range(100001) }}"), Contains("more than 100000"));
  CHECK_THAT(
      error_of("{% set ns = namespace(a=1) %}{% for i in range(9999) %}{% set ns.a = [ns.a] %}{% endfor %}"),
      Contains("nest deeper"));
  CHECK_THAT(error_of("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns.a.a.a }}"),
             Contains("has no text"));
}

TEST_CASE("a chain of ten thousand namespaces is freed without recursion") {
  CHECK(
      render("{% set a = namespace(x=namespace()) %}{% for i in range(10000) %}{% set n = namespace(p=a.x) %}"
             "{% set a.x = n %}{% endfor %}done")
          .bytes() == "done");
}

TEST_CASE("templates change no values") {
  for (const char* source :
       {"{{ l.append(1) }}", "{{ d.update({}) }}", "{{ d.pop('a') }}", "{{ x.__class__.y }}"})
    CHECK_THAT(error_of(source), Contains("is not allowed"));
}

TEST_CASE("strftime_now writes the given date on every day") {
  RenderOptions options;
  CHECK(Template("{{ strftime_now('%d %b %Y') }}").render({}, options).bytes() == "26 Jul 2024");
  options.date = "2025-01-02";
  CHECK(Template("{{ strftime_now('%d %b %Y') }}").render({}, options).bytes() == "02 Jan 2025");
  // A time without a zone, as transformers has it.
  CHECK(Template("{{ strftime_now('%Z|%z|%f|%%z|%Y%') }}").render({}, options).bytes() ==
        "||000000|%z|2025%");
  CHECK(Template("{{ strftime_now('%z') }}").render({}, options).bytes().empty());
  options.date = "tomorrow";
  CHECK_THAT(test::error_text([&] { Template("").render({}, options); }),
             Contains("expected a date such as 2024-07-26"));
}
