#include "template/layout.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"

namespace space::tmpl {

std::filesystem::path Layout::content(const std::string& digest) const { return contents() / digest.substr(digest.find(':') + 1); }

Result<Fd> Layout::lock() const {
  TRY_VOID(make_directories(root_, 0755));
  TRY(auto fd, open_file(root_ / "lock", O_RDWR | O_CREAT, 0644));
  while (flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return fail_errno(errno, "lock " + (root_ / "lock").string());
  }
  return fd;
}

bool is_version(std::string_view text) {
  auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '+' || c == '~' || c == ':' || c == '-'; };
  return !text.empty() && text.size() <= 100 && text.front() != '.' && std::all_of(text.begin(), text.end(), allowed);
}

}  // namespace space::tmpl
