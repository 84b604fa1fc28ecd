// Listing in pages. A cursor is the last entry's path below the listed folder; to go on, the walk goes down along the cursor and
// takes what comes after it, so that no state is kept between pages and what is added or removed in between does no harm.
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <set>
#include <unistd.h>

#include "agent/tree.h"
#include "base/encoding.h"

namespace space::agent {
namespace {

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

tl::unexpected<Error> bad_cursor() {
  return fail(ErrorKind::invalid_argument, "invalid_cursor", "the cursor \"after\" was not given by this listing", "begin without it");
}

class Walk {
 public:
  explicit Walk(const ListRequest& request) : limit_(request.limit), root_(request.path) {
    while (root_.size() > 1 && root_.ends_with('/')) root_.pop_back();
  }

  // Lists the folder `name` in `folder`, whose path below the root is `below` ("" for the root itself). `after` is the rest of the
  // cursor that lies in this folder, "" when everything is to come.
  Result<> folder(int folder, const char* name, const std::string& below, std::string_view after, int depth) {
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (below.empty() ? 0 : O_NOFOLLOW);
    const int fd = ::openat(folder, name, flags);
    if (fd < 0) {
      // A folder that is gone by now or not readable is listed, its content is not; the root must be readable.
      if (!below.empty()) return {};
      if (errno == ENOTDIR)
        return fail(ErrorKind::invalid_argument, "not_a_directory", fmt::format("{} is not a folder", root_),
                    "look at it with stat, or read it");
      return fail_errno(errno, fmt::format("list {}", root_));
    }
    const std::unique_ptr<DIR, CloseFolder> stream(::fdopendir(fd));
    if (!stream) {
      ::close(fd);
      return fail_errno(errno, "read a folder");
    }
    const std::string at(after.substr(0, after.find('/')));
    const std::string_view rest = at.size() < after.size() ? after.substr(at.size() + 1) : std::string_view();
    for (const std::string& one : names(stream.get(), at)) {
      if (full()) return {};
      const std::string path = below.empty() ? one : fmt::format("{}/{}", below, one);
      const bool passed = one == at;  // the entry was in an earlier page, what is in it perhaps not
      auto entry = read_entry(fd, one.c_str(), root_ == "/" ? "/" + path : fmt::format("{}/{}", root_, path));
      if (!entry) continue;
      const bool is_folder = S_ISDIR(entry->status.st_mode);
      if (!passed) {
        if (listing_.entries.size() == limit_) {
          listing_.next = base64url_encode(as_bytes(last_));
          return {};
        }
        listing_.entries.push_back(std::move(*entry));
        last_ = path;
      }
      if (is_folder && depth > 1) TRY_VOID(this->folder(fd, one.c_str(), path, passed ? rest : std::string_view(), depth - 1));
    }
    return {};
  }

  Listing take() { return std::move(listing_); }

 private:
  bool full() const { return listing_.next.has_value(); }

  // The names from `least` on, in order, no more than can still be of use: a folder of millions costs time but no memory.
  std::set<std::string> names(DIR* stream, const std::string& least) const {
    const std::size_t most = limit_ - listing_.entries.size() + 2;
    std::set<std::string> names;
    while (const dirent* entry = ::readdir(stream)) {
      std::string name = entry->d_name;
      if (name == "." || name == ".." || name < least) continue;
      if (names.size() >= most) {
        if (name > *names.rbegin()) continue;
        names.erase(std::prev(names.end()));
      }
      names.insert(std::move(name));
    }
    return names;
  }

  std::size_t limit_;
  std::string root_;
  Listing listing_;
  std::string last_;
};

}  // namespace

Result<Listing> list_folder(const ListRequest& request) {
  std::string after;
  if (!request.after.empty()) {
    auto decoded = base64url_decode(request.after);
    if (!decoded || decoded->empty() || decoded->size() > 4095 || decoded->find('\0') != std::string::npos) return bad_cursor();
    after = std::move(*decoded);
  }
  Walk walk(request);
  TRY_VOID(walk.folder(AT_FDCWD, request.path.c_str(), "", after, request.depth));
  return walk.take();
}

}  // namespace space::agent
