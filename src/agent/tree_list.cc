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

tl::unexpected<Error> bad_cursor() {
  return fail(ErrorKind::invalid_argument, "invalid_cursor", "the cursor \"after\" was not given by this listing", "begin without it");
}

class Walk {
 public:
  Walk(const ListRequest& request, const ReadEntry& read) : limit_(request.limit), root_(request.path), read_(read) {
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
    // The names of one reading can all be gone before they are looked at, so it goes on until no name was left out.
    for (std::string least = at;;) {
      TRY(const Names found, names(stream.get(), least));
      for (const std::string& one : found.names) {
        const bool passed = one == at;  // the entry was in an earlier page, what is in it perhaps not
        TRY_VOID(this->entry(fd, one, below.empty() ? one : fmt::format("{}/{}", below, one), passed, rest, depth));
        if (full()) return {};
      }
      if (!found.more) return {};
      least = *found.names.rbegin() + '\0';  // what comes right after that name
      ::rewinddir(stream.get());
    }
  }

  Listing take() { return std::move(listing_); }

 private:
  bool full() const { return listing_.next.has_value(); }

  // The entry `name` in `folder`, whose path below the root is `path`, and what is in it.
  Result<> entry(int folder, const std::string& name, const std::string& path, bool passed, std::string_view rest, int depth) {
    auto found = read_(folder, name.c_str(), root_ == "/" ? "/" + path : fmt::format("{}/{}", root_, path));
    if (!found) return {};
    const bool is_folder = S_ISDIR(found->status.st_mode);
    if (!passed) {
      if (listing_.entries.size() == limit_) {
        listing_.next = base64url_encode(as_bytes(last_));
        return {};
      }
      listing_.entries.push_back(std::move(*found));
      last_ = path;
    }
    if (!is_folder || depth <= 1) return {};
    return this->folder(folder, name.c_str(), path, passed ? rest : std::string_view(), depth - 1);
  }

  struct Names {
    std::set<std::string> names;
    bool more = false;  // there are others after these
  };
  // The names from `least` on, in order, no more than can still be of use: a folder of millions costs time but no memory.
  Result<Names> names(DIR* stream, const std::string& least) const {
    const std::size_t most = limit_ - listing_.entries.size() + 2;
    Names out;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(stream);
      if (!entry) break;
      std::string name = entry->d_name;
      if (name == "." || name == ".." || name < least) continue;
      if (out.names.size() >= most) {
        out.more = true;
        if (name > *out.names.rbegin()) continue;
        out.names.erase(std::prev(out.names.end()));
      }
      out.names.insert(std::move(name));
    }
    // Some folders of /proc open for everybody and say only here that they may not be read.
    if (errno != 0 && errno != EACCES && errno != EPERM) return fail_errno(errno, fmt::format("list {}", root_));
    return out;
  }

  std::size_t limit_;
  std::string root_;
  const ReadEntry& read_;
  Listing listing_;
  std::string last_;
};

}  // namespace

Result<Listing> list_folder(const ListRequest& request, const ReadEntry& read) {
  std::string after;
  if (!request.after.empty()) {
    auto decoded = base64url_decode(request.after);
    if (!decoded || decoded->empty() || decoded->size() > 4095 || decoded->find('\0') != std::string::npos) return bad_cursor();
    after = std::move(*decoded);
  }
  Walk walk(request, read);
  TRY_VOID(walk.folder(AT_FDCWD, request.path.c_str(), "", after, request.depth));
  return walk.take();
}

}  // namespace space::agent
