#include "data/file_notes.h"

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::data;
namespace fs = std::filesystem;

namespace {

struct Noted {
  test::TemporaryFolder folder;
  fs::path file = folder / "rows";
  FileNotes notes{folder / "notes", 4};

  Noted() {
    fs::create_directory(folder / "notes");
    write_file_atomic(file, "hello");
    notes.keep(file, facts_of(file), "value");
  }
  fs::path note() const { return fs::directory_iterator(folder / "notes")->path(); }
};

}  // namespace

TEST_CASE("a note is found again as long as the file is the same") {
  const Noted noted;
  CHECK(noted.notes.recall(noted.file) == "value");
  CHECK((fs::status(noted.note()).permissions() & fs::perms::mask) ==
        (fs::perms::owner_read | fs::perms::owner_write));
  const auto other = noted.folder / "other";
  fs::copy_file(noted.file, other);
  CHECK_FALSE(noted.notes.recall(other));
}

TEST_CASE("a note is forgotten with any change, also one that keeps size and modification time") {
  const auto forgotten_after = [](auto change) {
    const Noted noted;
    REQUIRE(noted.notes.recall(noted.file));
    change(noted.file);
    return !noted.notes.recall(noted.file);
  };
  CHECK(forgotten_after([](const fs::path& file) { write_file_atomic(file, "hello, world"); }));
  CHECK(forgotten_after([](const fs::path& file) { write_file_atomic(file, "hello"); }));  // another inode
  CHECK(forgotten_after([](const fs::path& file) { fs::resize_file(file, 4); }));
  CHECK(forgotten_after([](const fs::path& file) {
    const auto time = fs::last_write_time(file);
    fs::resize_file(file, 0);
    fs::resize_file(file, 5);  // five other bytes in the same file
    fs::last_write_time(file, time);
  }));
  CHECK(forgotten_after([](const fs::path& file) { fs::remove(file); }));
}

TEST_CASE("what changed while it was read, or is small, or was changed just now, gets no note") {
  const Noted noted;
  const FileFacts before = facts_of(noted.file);
  write_file_atomic(noted.file, "world");
  noted.notes.keep(noted.file, before, "of another content");
  CHECK_FALSE(noted.notes.recall(noted.file));
  FileFacts unsettled = facts_of(noted.file);
  CHECK(unsettled.settled);
  unsettled.settled = false;
  noted.notes.keep(noted.file, unsettled, "value");
  CHECK_FALSE(noted.notes.recall(noted.file));
  const auto small = noted.folder / "small";
  write_file_atomic(small, "abc");
  noted.notes.keep(small, facts_of(small), "value");
  CHECK_FALSE(noted.notes.recall(small));
  CHECK_THROWS_AS(facts_of(noted.folder / "absent"), Error);
}

TEST_CASE("a note that is damaged, or that somebody else could have written, is not read") {
  const Noted noted;
  const fs::path note = noted.note();
  const std::string whole = read_file(note);
  for (const std::string& text :
       {std::string(), whole.substr(0, 30), std::string("{}"), std::string("[1]")}) {
    write_file_atomic(note, text, 0600);
    CHECK_FALSE(noted.notes.recall(noted.file));
  }
  write_file_atomic(note, whole, 0600);
  CHECK(noted.notes.recall(noted.file));
  fs::permissions(note, fs::perms{0666});
  CHECK_FALSE(noted.notes.recall(noted.file));
}

TEST_CASE("a file's hash is that of its bytes") {
  const test::TemporaryFolder folder;
  std::string bytes(3'000'000, 'x');
  bytes[2'500'000] = 'y';
  write_file_atomic(folder / "file", bytes);
  CHECK(file_sha256(folder / "file") == sha256_hex(bytes));
  CHECK_THROWS_AS(file_sha256(folder / "absent"), Error);
  CHECK_THROWS_AS(file_sha256(folder.path()), Error);
}
