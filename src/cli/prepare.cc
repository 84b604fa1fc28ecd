#include "cli/prepare.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <fmt/format.h>

#include "base/encoding.h"
#include "base/file.h"
#include "template/trust_policy.h"

namespace space::cli {
namespace {

constexpr std::uint64_t kLeastFreeBytes = 1ull << 30;

// The closest folder of `path` that exists: the one whose filesystem will hold it.
std::filesystem::path existing_parent(std::filesystem::path path) {
  std::error_code ignored;
  while (!std::filesystem::exists(path, ignored) && path.has_parent_path() && path != path.parent_path()) path = path.parent_path();
  return path;
}

Result<> check_space(const std::filesystem::path& folder) {
  struct statvfs info {};
  const auto path = existing_parent(folder);
  if (::statvfs(path.c_str(), &info) != 0) return fail_errno(errno, "statvfs " + path.string());
  const std::uint64_t free = static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
  if (free >= kLeastFreeBytes) return {};
  return fail(ErrorKind::insufficient_storage, "disk_full",
              fmt::format("only {} MiB are free on the disk of {}", free >> 20, folder.string()),
              "free at least 1 GiB there, or name another folder with --data-dir");
}

Result<> check_tun() {
  const Fd tun(::open("/dev/net/tun", O_RDWR | O_CLOEXEC));
  if (tun) return {};
  return fail(ErrorKind::unsupported, "no_tun", fmt::format("/dev/net/tun cannot be opened: {}", std::strerror(errno)),
              "load the module with `modprobe tun`; in a container, pass the device in (docker: --device /dev/net/tun)");
}

// node reads the policy, and is not root; a mistake in it is told before anything is written.
Result<> check_trust(const ServerSettings& settings) {
  if (settings.trust_file.empty()) return {};
  TRY_VOID(tmpl::read_trust_policy(settings.trust_file));
  struct stat st {};
  if (::stat(settings.trust_file.c_str(), &st) == 0 && (st.st_mode & S_IROTH) != 0) return {};
  return fail(ErrorKind::permission_denied, "trust_policy",
              fmt::format("{} cannot be read by the server's roles, which are not root", settings.trust_file.string()), "chmod 644");
}

// A folder at `path` with exactly this owner and mode; folders above it that are missing are root's and readable.
Result<> own_folder(const std::filesystem::path& path, uid_t uid, gid_t gid, mode_t mode) {
  TRY_VOID(make_directories(path, 0755));
  if (::chown(path.c_str(), uid, gid) != 0) return fail_errno(errno, "chown " + path.string());
  if (::chmod(path.c_str(), mode) != 0) return fail_errno(errno, "chmod " + path.string());
  return {};
}

}  // namespace

Result<> check_host(const ServerSettings& settings) {
  if (settings.tls_certificate.empty() != settings.tls_key.empty())
    return fail(ErrorKind::invalid_argument, "tls_incomplete", "a certificate and its key go together",
                "give both --tls-cert and --tls-key, or neither");
  TRY_VOID(parse_listen(settings.listen));
  if (::geteuid() != 0)
    return fail(ErrorKind::permission_denied, "not_root",
                "the server must be started by root: it makes namespaces, jails and users for the VMs",
                "run it with sudo; the roles that talk to clients and VMs give root up themselves");
  TRY_VOID(check_trust(settings));
  if (settings.driver == "qemu") TRY_VOID(check_tun());
  return check_space(settings.data_dir);
}

Result<> make_folders(const ServerSettings& s) {
  // The sticky bit lets api add its key file and node its socket without letting either touch what others put there.
  TRY_VOID(own_folder(s.data_dir, 0, s.api_uid(), 01775));
  TRY_VOID(own_folder(s.templates(), 0, 0, 0755));
  TRY_VOID(own_folder(s.bases(), s.node_uid(), s.node_uid(), 0700));
  TRY_VOID(own_folder(s.data_dir / "node", s.node_uid(), s.node_uid(), 0700));
  TRY_VOID(own_folder(s.data_dir / "node" / "sandboxes", s.node_uid(), s.node_uid(), 0700));
  TRY_VOID(own_folder(s.data_dir / "control", s.api_uid(), s.api_uid(), 0700));
  TRY_VOID(own_folder(s.data_dir / "egress", s.egress_uid(), s.egress_uid(), 0700));
  TRY_VOID(own_folder(s.run_dir, 0, s.node_uid(), 01775));
  TRY_VOID(own_folder(s.run_dir / "api", s.api_uid(), s.api_uid(), 0755));
  TRY_VOID(own_folder(s.run_dir / "egress", s.egress_uid(), s.egress_uid(), 0711));
  TRY_VOID(own_folder(s.run_dir / "node", s.node_uid(), s.node_uid(), 0711));
  TRY_VOID(own_folder(s.run_dir / "warden", 0, 0, 0711));
  return {};
}

Result<Fd> lock_run_dir(const ServerSettings& settings) {
  TRY(Fd file, open_file(settings.run_dir / "lock", O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail_errno(errno, "lock " + settings.run_dir.string());
    auto holder = read_fd(file, 64);
    while (holder && !holder->empty() && holder->back() == '\n') holder->pop_back();
    return fail(
        ErrorKind::conflict, "already_running",
        fmt::format("a server already runs on {}{}", settings.run_dir.string(), holder && !holder->empty() ? ", process " + *holder : ""),
        "stop that one first, or give this one its own --run-dir, --data-dir and --listen");
  }
  if (::ftruncate(file.get(), 0) != 0) return fail_errno(errno, "truncate the lock file");
  TRY_VOID(pwrite_all(file, as_bytes(fmt::format("{}\n", ::getpid())), 0));
  return file;
}

}  // namespace space::cli
