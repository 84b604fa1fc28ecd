#include "warden/uid_slots.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/file.h"

namespace space::warden {
namespace {

Result<Fd> claim_block(uid_t first) {
  Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(errno, "make a socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("space-vmm-uids-{}", first);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    return fail_errno(errno, fmt::format("claim uids from {}", first));
  return fd;
}

// Real uids, from /proc/PID/status: the owner of /proc/PID of an undumpable process is root.
std::set<uid_t> uids_of_processes() {
  std::set<uid_t> uids;
  for (const std::string& name : list_directory("/proc").value_or(std::vector<std::string>())) {
    if (name[0] < '0' || name[0] > '9') continue;
    const std::string status = read_file(fmt::format("/proc/{}/status", name), 65536).value_or("");
    if (const auto at = status.find("\nUid:\t"); at != std::string::npos)
      uids.insert(static_cast<uid_t>(std::strtoul(status.c_str() + at + 6, nullptr, 10)));
  }
  return uids;
}

}  // namespace

Result<UidSlots> UidSlots::claim(uid_t first) {
  for (int block = 0; block < kBlocks; ++block) {
    const uid_t start = first + static_cast<uid_t>(block) * kBlock;
    auto fd = claim_block(start);
    if (!fd) continue;
    UidSlots slots(std::move(*fd), start);
    for (uid_t uid : uids_of_processes())
      if (uid >= start && uid < start + kBlock) slots.in_use_.insert(uid);
    return slots;
  }
  return fail(ErrorKind::resource_exhausted, "uids_in_use", fmt::format("{} servers on this host share the uids from {}", kBlocks, first),
              "choose another uid base");
}

Result<uid_t> UidSlots::take() {
  for (uid_t tried = 0; tried < kBlock; ++tried) {
    const uid_t uid = first_ + next_;
    next_ = (next_ + 1) % kBlock;
    if (in_use_.insert(uid).second) return uid;
  }
  return fail(ErrorKind::resource_exhausted, "too_many_vms", fmt::format("all {} uids for VMMs are in use", kBlock),
              "delete sandboxes first");
}

void UidSlots::adopt(uid_t uid) { in_use_.insert(uid); }

void UidSlots::give_back(uid_t uid) { in_use_.erase(uid); }

}  // namespace space::warden
