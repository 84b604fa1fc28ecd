// Changes below a path, by inotify(7). One watcher, one reader. `open` and `digest` block and act with the rights of the calling
// thread: call them from a pool under an Impersonation, one at a time. Symlinks inside the tree are not followed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace space::agent {

enum class Change { created, modified, removed, moved, attributes, overflow };
std::string_view to_string(Change change);

struct WatchEvent {
  Change change = Change::overflow;
  std::string path;  // raw bytes; for moved the new one; for overflow the root
  std::string from;  // for moved
  bool folder = false;
  bool operator==(const WatchEvent&) const = default;
};

class Watcher {
 public:
  static constexpr std::size_t kMostFolders = 8192;

  // resource_exhausted/too_many_folders when there are more below the path.
  static Result<Watcher> open(const std::string& path, bool recursive);

  const Fd& descriptor() const { return inotify_; }  // readable when there is something; non-blocking
  // What the kernel queued up to now. Overflow (the kernel's queue was full, or too many folders): something was missed.
  std::vector<WatchEvent> digest();
  bool ended() const { return ended_; }  // the path itself is gone

 private:
  struct Pending {  // the first half of a move
    std::uint32_t cookie;
    std::string path;
    bool folder;
  };
  bool add(const std::string& path, bool root);  // false: no more watches
  bool add_tree(const std::string& path, std::vector<WatchEvent>* report);
  bool miss(const std::string& path);  // false: too many are missed
  void follow(const std::string& path, std::vector<WatchEvent>& out);
  void follow_displaced(std::vector<WatchEvent>& out);
  void forget(const std::string& path);
  void forget_tree(const std::string& path);
  void rename_tree(const std::string& from, const std::string& to);
  void handle(int watch, std::uint32_t mask, std::uint32_t cookie, std::string_view name, std::vector<WatchEvent>& out);
  void handle_root(std::uint32_t mask, std::vector<WatchEvent>& out);
  void folder_moved(const std::string& from, const std::string& to, std::vector<WatchEvent>& out);
  void arrived(const std::string& path, bool folder, std::vector<WatchEvent>& out);
  void flush_pending(std::vector<WatchEvent>& out);
  void overflowed(std::vector<WatchEvent>& out);

  Fd inotify_;
  std::string root_;
  bool recursive_ = false, root_is_folder_ = false, ended_ = false;
  std::map<int, std::string> paths_;
  std::map<std::string, int> watches_;
  std::optional<Pending> pending_;
  std::set<std::string> reported_;      // found while a new folder was read: the kernel may tell of them as well
  std::set<std::string> missed_;        // folders that had left their path when it was to be watched: the kernel will tell where to
  std::vector<std::string> displaced_;  // paths whose watch proved to be another folder's
};

}  // namespace space::agent
