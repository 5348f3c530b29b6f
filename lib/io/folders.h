#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"

// Folders that appear whole or not at all, and deletion that touches nothing but our own.
namespace lorikeet::io {

/// The file that marks a folder as written, and removable, by us.
inline constexpr const char* kMarkerFile = "lorikeet_checkpoint.json";

/// The file of a FolderLock.
inline constexpr const char* kLockFile = ".lorikeet.lock";

/// A folder written aside and put in place at once: files go into `path()`, a temporary name beside the
/// target; `commit` syncs every file and the folder, and renames. A crash at any moment leaves the old
/// target, or the whole new one. On a file system that can't exchange two folders (NFS, some FUSE) the crash
/// may leave the old one set aside under another name: recover_folders, or the next AtomicFolder of the same
/// target, puts it back. Destroyed before the commit, it removes what it wrote.
class AtomicFolder {
 public:
  /// Makes the temporary folder with our marker in it (and parents of `target` that are absent), after
  /// recovering what killed writers of the same target left. Throws Error (kEnvironment) when that fails, and
  /// (kUsage) when `target` is there and not marked as ours.
  explicit AtomicFolder(std::filesystem::path target);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Where to write; not valid after `commit`.
  const std::filesystem::path& path() const { return temporary_; }

  /// A target that is there already, marked as ours, is replaced. Throws Error (kEnvironment) when that
  /// fails, which leaves the old one, and (kUsage) when the target is there by now and not ours.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  UniqueFd lock_;  // on the temporary folder: its writer lives
  bool committed_ = false;
};

/// What an AtomicFolder is to be made for, where people asked for `folder`: that path, or where it, or a link
/// of that name, is an empty folder, which is removed, that one's own. Throws Error (kEnvironment) when it
/// can't be removed.
std::filesystem::path take_place_of_empty(const std::filesystem::path& folder);

/// True for a real folder (no link) that holds our marker as a real file.
bool has_own_marker(const std::filesystem::path& folder);

/// Removes a checkpoint folder: one with a step's name (io/step_folder.h) that holds our marker. Links inside
/// are removed, never followed; the folder is renamed first, so that a crash midway leaves no half of a
/// checkpoint under its name. Throws Error when it is anything else, or can't be removed.
void remove_own_folder(const std::filesystem::path& folder);

/// Undoes in `parent` what killed writers left unfinished. A folder of ours that a commit had set aside gets
/// its name back where no folder has it. Other real folders with a temporary name (base/temporary.h) that
/// hold our marker, or nothing but a marker that was never finished, are removed. Nothing of a writer that
/// lives is touched, links are never followed, other files stay. Returns what it removed. Throws Error
/// (kEnvironment) when a folder can't be put back or removed.
std::vector<std::filesystem::path> recover_folders(const std::filesystem::path& parent);

/// True for what a killed writer may leave of a file that `own` says is ours to write, by its name alone: a
/// temporary name (base/temporary.h), or the file of make_writable_folder.
bool is_stale_file_name(const std::string& name, const std::function<bool(const std::string&)>& own);

/// Removes from `parent` the regular files, no links, with such names. To be called by the holder of the
/// FolderLock, before it writes anything itself. Returns what it removed.
std::vector<std::filesystem::path> remove_stale_files(const std::filesystem::path& parent,
                                                      const std::function<bool(const std::string&)>& own);

/// Keeps two runs from writing into one folder: a lock on a file in it, kLockFile, held for the object's life
/// and released by the system when the process dies.
class FolderLock {
 public:
  /// Throws Error (kUsage) when another process holds it, and (kEnvironment) when the file can't be made or
  /// locked.
  explicit FolderLock(const std::filesystem::path& folder);

  /// True while the path leads to the file that was locked: false once the folder was deleted or replaced.
  bool is_in_place() const;

  /// Removes the lock's file, for a folder in which nothing came to be; another run's stays.
  void remove();

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
};

}  // namespace lorikeet::io
