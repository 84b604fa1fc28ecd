#include "agent/watch.h"
#include "base/fd.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

namespace space::agent {
namespace {

constexpr std::uint32_t kEvents =
    IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_EXCL_UNLINK;
constexpr std::string_view kUploadName = ".space-upload-";  // content.cc: names that exist for a moment
constexpr int kSecondHalf_ms = 10;
constexpr std::size_t kMostReported = 4096, kMostMissed = 4096;

std::string join(const std::string& folder, std::string_view name) {
  return folder == "/" ? fmt::format("/{}", name) : fmt::format("{}/{}", folder, name);
}

bool is_upload(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return path.substr(slash == std::string_view::npos ? 0 : slash + 1).starts_with(kUploadName);
}

// A file made by O_TMPFILE is called "#" and its inode in events although no such name exists.
bool is_nameless(const std::string& path) {
  struct stat st = {};
  return path[path.rfind('/') + 1] == '#' && ::lstat(path.c_str(), &st) != 0 && errno == ENOENT;
}

// The path moved away, or something else has its name.
bool is_gone(int error) { return error == ENOENT || error == ENOTDIR || error == ELOOP; }

void erase_tree(std::set<std::string>& paths, const std::string& path) {
  paths.erase(path);
  paths.erase(paths.lower_bound(path + "/"), paths.lower_bound(path + "0"));  // '0' follows '/'
}

}  // namespace

std::string_view to_string(Change change) {
  switch (change) {
    case Change::created:
      return "created";
    case Change::modified:
      return "modified";
    case Change::removed:
      return "removed";
    case Change::moved:
      return "moved";
    case Change::attributes:
      return "attributes";
    case Change::overflow:
      break;
  }
  return "overflow";
}

Result<Watcher> Watcher::open(const std::string& path, bool recursive) {
  Watcher watcher;
  watcher.root_ = path;
  while (watcher.root_.size() > 1 && watcher.root_.ends_with('/')) watcher.root_.pop_back();
  struct stat st = {};
  if (::stat(path.c_str(), &st) != 0) return fail_errno(errno, path);
  watcher.root_is_folder_ = S_ISDIR(st.st_mode);
  watcher.recursive_ = recursive && watcher.root_is_folder_;
  watcher.inotify_ = Fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!watcher.inotify_) return fail_errno(errno, "inotify_init");
  if (!watcher.add(watcher.root_, true)) return fail_errno(errno, fmt::format("watch {}", path));
  if (watcher.recursive_ && !watcher.add_tree(watcher.root_, nullptr))
    return fail(ErrorKind::resource_exhausted, "too_many_folders", fmt::format("{} has more than {} folders below it", path, kMostFolders),
                "watch a part of it");
  return watcher;
}

bool Watcher::add(const std::string& path, bool root) {
  if (watches_.size() >= kMostFolders) {
    errno = ENOSPC;
    return false;
  }
  const std::uint32_t how = root ? 0U : static_cast<std::uint32_t>(IN_DONT_FOLLOW | IN_ONLYDIR);
  const int watch = ::inotify_add_watch(inotify_.get(), path.c_str(), kEvents | how);
  if (watch < 0) {
    if (!root && is_gone(errno)) return miss(path);
    return !root && errno != ENOSPC && errno != ENOMEM;  // not readable for this user: not watched
  }
  std::string& known = paths_[watch];
  if (known == root_ && !root) return true;  // mounted below itself
  if (!known.empty() && known != path) {
    // This folder was taken for another that had its path when the kernel told of that one. The other is where it is said to be now.
    const auto other = watches_.find(known);
    if (other != watches_.end() && other->second == watch) watches_.erase(other);
    displaced_.push_back(known);
  }
  known = path;
  watches_[path] = watch;
  return true;
}

// Watches every folder below `path`. With `report`, what is found there is new and reported.
bool Watcher::add_tree(const std::string& path, std::vector<WatchEvent>* report) {
  const bool root = path == root_;
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | (root ? 0 : O_NOFOLLOW));
  if (fd < 0) return root || !is_gone(errno) || miss(path);
  const std::unique_ptr<DIR, CloseFolder> folder(::fdopendir(fd));
  if (!folder) {
    ::close(fd);
    return false;
  }
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || name.starts_with(kUploadName)) continue;
    const std::string found = join(path, name);
    bool is_folder = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN) {
      struct stat st = {};
      is_folder = ::lstat(found.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
    }
    if (report) {
      report->push_back({Change::created, found, {}, is_folder});
      if (reported_.size() < kMostReported) reported_.insert(found);
    }
    if (!is_folder || watches_.contains(found)) continue;
    if (!add(found, false) || !add_tree(found, report)) return false;
  }
  return true;
}

// A folder made and renamed at once is gone when its creation is read; what tells of the renaming comes later in the queue.
bool Watcher::miss(const std::string& path) {
  forget(path);
  if (missed_.size() >= kMostMissed) return false;
  missed_.insert(path);
  return true;
}

void Watcher::follow(const std::string& path, std::vector<WatchEvent>& out) {
  if (!add(path, false) || !add_tree(path, &out)) out.push_back({Change::overflow, root_, {}, true});
}

void Watcher::follow_displaced(std::vector<WatchEvent>& out) {
  while (!displaced_.empty()) {
    const std::string path = std::move(displaced_.back());
    displaced_.pop_back();
    if (watches_.contains(path)) continue;
    // A folder that has two paths, by a bind mount, is watched by one of them: without this the two would displace each other for ever.
    const int watch = ::inotify_add_watch(inotify_.get(), path.c_str(), kEvents | IN_DONT_FOLLOW | IN_ONLYDIR);
    if (watch < 0 || !paths_.contains(watch)) follow(path, out);
  }
}

void Watcher::forget(const std::string& path) {
  const auto known = watches_.find(path);
  if (known == watches_.end()) return;
  ::inotify_rm_watch(inotify_.get(), known->second);
  paths_.erase(known->second);
  watches_.erase(known);
}

void Watcher::forget_tree(const std::string& path) {
  const std::string below = path + "/";
  for (auto it = watches_.lower_bound(path); it != watches_.end() && (it->first == path || it->first < path + "0");) {  // '0' follows '/'
    if (it->first == path || it->first.starts_with(below)) {
      ::inotify_rm_watch(inotify_.get(), it->second);
      paths_.erase(it->second);
      it = watches_.erase(it);
    } else {
      ++it;
    }
  }
}

void Watcher::rename_tree(const std::string& from, const std::string& to) {
  for (auto& [watch, path] : paths_) {
    if (path != from && !path.starts_with(from + "/")) continue;
    watches_.erase(path);
    path = to + path.substr(from.size());
    watches_[path] = watch;
  }
}

void Watcher::folder_moved(const std::string& from, const std::string& to, std::vector<WatchEvent>& out) {
  rename_tree(from, to);
  erase_tree(reported_, from);
  if (!recursive_) return;
  std::set<std::string> unwatched{to};
  for (auto it = missed_.lower_bound(from + "/"); it != missed_.end() && it->starts_with(from + "/"); ++it)
    unwatched.insert(to + it->substr(from.size()));
  erase_tree(missed_, from);
  for (const std::string& path : unwatched)  // a folder before those in it, which it finds
    if (!watches_.contains(path)) follow(path, out);
}

void Watcher::arrived(const std::string& path, bool folder, std::vector<WatchEvent>& out) {
  if (is_upload(path)) return;
  if (reported_.erase(path) > 0) return;
  out.push_back({Change::created, path, {}, folder});
  if (folder && recursive_) follow(path, out);
}

void Watcher::flush_pending(std::vector<WatchEvent>& out) {
  if (!pending_) return;
  const Pending left = *std::exchange(pending_, std::nullopt);
  if (is_upload(left.path)) return;
  if (left.folder) forget_tree(left.path);
  erase_tree(missed_, left.path);
  erase_tree(reported_, left.path);
  out.push_back({Change::removed, left.path, {}, left.folder});
}

void Watcher::overflowed(std::vector<WatchEvent>& out) {
  flush_pending(out);
  out.push_back({Change::overflow, root_, {}, root_is_folder_});
  const auto root = watches_.find(root_);
  if (!recursive_ || root == watches_.end()) return;
  // What was missed may have made or renamed folders anywhere: all paths are read anew. A folder that is still there keeps its watch.
  const std::map<int, std::string> before = std::exchange(paths_, {});
  paths_[root->second] = root_;
  watches_ = {{root_, root->second}};
  missed_.clear();
  reported_.clear();
  add_tree(root_, nullptr);
  displaced_.clear();
  for (const auto& [watch, path] : before)
    if (!paths_.contains(watch)) ::inotify_rm_watch(inotify_.get(), watch);
}

void Watcher::handle_root(std::uint32_t mask, std::vector<WatchEvent>& out) {
  if (mask & (IN_DELETE_SELF | IN_MOVE_SELF)) {
    if (!ended_) out.push_back({Change::removed, root_, {}, root_is_folder_});
    ended_ = true;
  } else if (mask & IN_MODIFY) {
    out.push_back({Change::modified, root_, {}, root_is_folder_});
  } else if (mask & IN_ATTRIB) {
    struct stat st = {};
    if (::stat(root_.c_str(), &st) == 0) out.push_back({Change::attributes, root_, {}, root_is_folder_});
  }
}

void Watcher::handle(int watch, std::uint32_t mask, std::uint32_t cookie, std::string_view name, std::vector<WatchEvent>& out) {
  if (pending_ && !(mask & IN_MOVED_TO && cookie == pending_->cookie)) flush_pending(out);
  if (mask & IN_Q_OVERFLOW) return overflowed(out);
  const auto found = paths_.find(watch);
  if (found == paths_.end()) return;
  if (mask & IN_IGNORED) {
    const auto watched = watches_.find(found->second);  // another folder may have that path by now
    if (watched != watches_.end() && watched->second == watch) watches_.erase(watched);
    paths_.erase(found);
    return;
  }
  if (name.empty()) {  // about the watched thing itself: a folder below the root tells its parent's watch the same
    if (found->second == root_) handle_root(mask, out);
    return;
  }
  const std::string path = join(found->second, name);
  const bool folder = (mask & IN_ISDIR) != 0;
  if (mask & IN_CREATE) {
    arrived(path, folder, out);
  } else if (mask & IN_MOVED_FROM) {
    pending_ = Pending{cookie, path, folder};
  } else if (mask & IN_MOVED_TO) {
    reported_.erase(path);  // something else has that name now
    if (!pending_) return arrived(path, folder, out);
    const Pending from = *std::exchange(pending_, std::nullopt);
    if (is_upload(from.path)) {  // an upload has replaced the file
      out.push_back({Change::modified, path, {}, false});
      return;
    }
    reported_.erase(from.path);
    out.push_back({Change::moved, path, from.path, folder});
    if (folder) folder_moved(from.path, path, out);
  } else if (!is_upload(path) && !is_nameless(path)) {
    const Change change = mask & IN_DELETE ? Change::removed : mask & IN_MODIFY ? Change::modified : Change::attributes;
    out.push_back({change, path, {}, folder});
    if (change != Change::removed) return;
    erase_tree(reported_, path);
    erase_tree(missed_, path);
  }
}

std::vector<WatchEvent> Watcher::digest() {
  std::vector<WatchEvent> out;
  alignas(inotify_event) char buffer[16 << 10];
  for (int rounds = 0; rounds < 16; ++rounds) {
    // The two halves of a move are queued one after the other: the second may be a moment behind.
    if (pollfd wait{inotify_.get(), POLLIN, 0}; pending_) ::poll(&wait, 1, kSecondHalf_ms);
    const ssize_t n = ::read(inotify_.get(), buffer, sizeof buffer);
    if (n <= 0) {
      // What was found in folders stood in the queue by then, if the kernel had to tell of it at all: now all of that is read.
      reported_.clear();
      break;
    }
    for (ssize_t at = 0; at + static_cast<ssize_t>(sizeof(inotify_event)) <= n;) {
      inotify_event event;
      std::memcpy(&event, buffer + at, sizeof event);
      const char* name = buffer + at + sizeof event;
      handle(event.wd, event.mask, event.cookie, {name, ::strnlen(name, event.len)}, out);
      follow_displaced(out);
      at += static_cast<ssize_t>(sizeof event + event.len);
    }
  }
  flush_pending(out);
  if (reported_.size() >= kMostReported) reported_.clear();
  // Many writes to one file in a row are one change.
  out.erase(std::unique(out.begin(), out.end(),
                        [](const WatchEvent& a, const WatchEvent& b) {
                          return a == b && (a.change == Change::modified || a.change == Change::attributes);
                        }),
            out.end());
  return out;
}

}  // namespace space::agent
