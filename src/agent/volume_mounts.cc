#include "agent/volume_mounts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "agent/fuse_server.h"
#include "agent/volume.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"

namespace space::agent {
namespace {

constexpr std::uint16_t kBackground = 16;  // requests that nobody waits for, such as reading ahead

fuse_in_header head_of(std::span<const std::byte> request) {
  fuse_in_header head{};
  std::memcpy(&head, request.data(), sizeof head);
  return head;
}

// One message to the kernel. It refuses what it does not wait for, which is nobody's loss.
void tell_kernel(const Fd& device, std::span<const std::byte> answer) { (void)!::write(device.get(), answer.data(), answer.size()); }

void refuse(const Fd& device, std::uint64_t number, int error) {
  const fuse_out_header out{sizeof(fuse_out_header), -error, number};
  tell_kernel(device, std::as_bytes(std::span(&out, 1)));
}

void agree(const Fd& device, std::uint64_t number, const fuse_init_in& in) {
  struct {
    fuse_out_header head;
    fuse_init_out init;
  } out{};
  out.head = {sizeof out, 0, number};
  out.init.major = FUSE_KERNEL_VERSION;
  out.init.minor = kFuseMinor;
  out.init.max_readahead = std::min<std::uint32_t>(in.max_readahead, kFuseData);
  out.init.flags = in.flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_AUTO_INVAL_DATA | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES);
  out.init.max_background = kBackground;
  out.init.congestion_threshold = kBackground * 3 / 4;
  out.init.max_write = kFuseData;
  out.init.time_gran = 1;
  out.init.max_pages = kFuseData / 4096;
  tell_kernel(device, std::as_bytes(std::span(&out, 1)));
}

Result<> make_mount_point(const std::string& path) {
  struct stat st = {};
  if (::stat(path.c_str(), &st) == 0) {
    if (S_ISDIR(st.st_mode)) return {};
    return fail(ErrorKind::invalid_argument, "not_a_directory", fmt::format("{} is not a folder", path), "mount the volume on a folder");
  }
  return make_directories(path, 0755);
}

}  // namespace

Result<std::string> mount_path(std::string_view text) {
  TRY(std::string path, volume_path(text));
  if (path != text)
    return fail(ErrorKind::invalid_argument, "invalid_path", "a mount's path is clean: no '//' and no '/' at its end",
                "send a path such as /mnt/data");
  for (const std::string_view of_system : {"/", "/proc", "/sys", "/dev", "/run", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64"})
    if (path == of_system || (of_system.size() > 1 && path.starts_with(fmt::format("{}/", of_system))))
      return fail(ErrorKind::invalid_argument, "invalid_path", fmt::format("a volume cannot be mounted on {}", path),
                  "choose a folder of your own, such as /mnt/data");
  return path;
}

VolumeMount::VolumeMount(std::string path, Fd device) : path_(std::move(path)), id_(new_id()), device_(std::move(device)) {}

Result<std::shared_ptr<VolumeMount>> VolumeMount::make(const std::string& path) {
  Fd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!device)
    return fail(ErrorKind::unsupported, "volume_unsupported", "the kernel of this sandbox's template has no FUSE, which volumes need",
                "whoever keeps the server runs scripts/template build once more");
  TRY_VOID(make_mount_point(path));
  const std::string options = fmt::format("fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other", device.get());
  if (::mount("space-volume", path.c_str(), "fuse.volume", MS_NOSUID | MS_NODEV | MS_NOATIME, options.c_str()) != 0)
    return fail_errno(errno, fmt::format("mount a volume on {}", path));
  std::shared_ptr<VolumeMount> mount(new VolumeMount(path, std::move(device)));
  std::thread([mount] { mount->carry_requests(); }).detach();
  return mount;
}

bool VolumeMount::answer_here(std::span<const std::byte> request) {
  const fuse_in_header head = head_of(request);
  if (head.opcode == FUSE_INIT) {
    fuse_init_in in{};
    std::memcpy(&in, request.data() + sizeof head, std::min(sizeof in, request.size() - sizeof head));
    agree(device_, head.unique, in);
    return true;
  }
  if (head.opcode != FUSE_INTERRUPT) return false;
  refuse(device_, head.unique, ENOSYS);  // whoever is interrupted by a signal that kills does not wait
  return true;
}

void VolumeMount::carry_requests() {
  std::vector<std::byte> room(kFuseMessage);
  for (;;) {
    const ssize_t n = ::read(device_.get(), room.data(), room.size());
    if (n < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) continue;  // fuse(4): it was interrupted meanwhile
    if (n < static_cast<ssize_t>(sizeof(fuse_in_header))) break;                    // ENODEV: the mount is gone
    const auto request = std::span<const std::byte>(room).first(static_cast<std::size_t>(n));
    if (answer_here(request)) continue;
    const fuse_in_header head = head_of(request);
    const bool answered = head.opcode != FUSE_FORGET && head.opcode != FUSE_BATCH_FORGET;
    const std::lock_guard sending(sending_);
    if (answered) {
      const std::lock_guard hold(state_);
      waiting_.insert_or_assign(head.unique, std::vector<std::byte>(request.begin(), request.end()));
    }
    if (wire_ && !wire_->send(request)) {
      wire_->close();
      wire_.reset();
    }
  }
  over_ = true;
  const std::lock_guard sending(sending_);
  if (wire_) wire_->close();
  wire_.reset();
}

// Answers are taken while the requests are sent: neither end waits for the other to read.
void VolumeMount::use(std::shared_ptr<VolumeWire> wire) {
  std::thread([self = shared_from_this(), wire] { self->carry_answers(wire); }).detach();
  std::thread([self = shared_from_this(), wire] { self->begin(wire); }).detach();
}

void VolumeMount::begin(const std::shared_ptr<VolumeWire>& wire) {
  const std::lock_guard sending(sending_);
  if (wire_) wire_->close();
  wire_ = wire;
  if (over_) return wire->close();
  std::map<std::uint64_t, std::vector<std::byte>> again;
  {
    const std::lock_guard hold(state_);
    again = waiting_;
  }
  for (const auto& [number, request] : again)
    if (!wire->send(request)) return wire->close();
}

void VolumeMount::drop(const std::shared_ptr<VolumeWire>& wire) {
  wire->close();  // whoever is sending on it stops
  const std::lock_guard sending(sending_);
  if (wire_ == wire) wire_.reset();
}

void VolumeMount::carry_answers(const std::shared_ptr<VolumeWire>& wire) {
  for (;;) {
    const std::vector<std::byte> answer = wire->receive(sizeof(fuse_out_header));
    if (answer.empty()) return drop(wire);
    fuse_out_header head{};
    std::memcpy(&head, answer.data(), sizeof head);
    bool waited_for = false;
    {
      const std::lock_guard hold(state_);
      waited_for = !wire->closed() && waiting_.erase(head.unique) > 0;  // what a closed one asked is asked again on the next
    }
    if (waited_for) tell_kernel(device_, answer);
  }
}

void VolumeMount::end() {
  // MNT_FORCE ends the connection to the kernel; MNT_DETACH takes the mount away though somebody has files open in it.
  if (::umount2(path_.c_str(), MNT_FORCE | MNT_DETACH) != 0)
    log::warn("volume.not_unmounted", {{"path", path_}, {"error", std::string(std::strerror(errno))}});
}

Result<> VolumeMounts::set(const std::vector<std::string>& paths) {
  const std::lock_guard hold(lock_);
  for (auto at = mounts_.begin(); at != mounts_.end();) {
    if (std::find(paths.begin(), paths.end(), at->first) != paths.end()) {
      ++at;
      continue;
    }
    at->second->end();
    at = mounts_.erase(at);
  }
  std::vector<std::string> sorted = paths;
  std::sort(sorted.begin(), sorted.end());
  for (const std::string& path : sorted) {
    const auto known = mounts_.find(path);
    if (known != mounts_.end() && !known->second->over()) continue;
    TRY(auto made, VolumeMount::make(path));
    mounts_.insert_or_assign(path, std::move(made));
  }
  return {};
}

std::shared_ptr<VolumeMount> VolumeMounts::find(const std::string& path) {
  const std::lock_guard hold(lock_);
  const auto found = mounts_.find(path);
  return found == mounts_.end() ? nullptr : found->second;
}

}  // namespace space::agent
