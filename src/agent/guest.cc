#include "agent/guest.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/random.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/authority.h"
#include "agent/java_store.h"
#include "agent/old_connections.h"
#include "base/encoding.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"

namespace space::agent {
namespace {

constexpr std::size_t kHostnameWidth = 64;  // HOST_NAME_MAX

// Small files of the guest that are written after every load. Same length: the bytes are changed where they are, which dirties one
// page and no metadata; the users' processes stand still meanwhile. Else the file is replaced. Not synced: the next init writes it
// again. What stands there may be anything that a user of the guest put there, so no link is followed.
Result<> write_small(const std::string& path, std::string_view content, mode_t mode) {
  struct stat st = {};
  if (const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
      fd && ::fstat(fd.get(), &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 && st.st_uid == 0 &&
      static_cast<std::size_t>(st.st_size) == content.size() && (st.st_mode & 07777) == mode)
    return pwrite_all(fd, as_bytes(content), 0);
  const std::string aside = path + ".space";
  ::unlink(aside.c_str());
  TRY(const Fd fd, open_file(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
  TRY_VOID(write_all(fd, content));
  if (::fchmod(fd.get(), mode) != 0) return fail_errno(errno, path);
  if (::rename(aside.c_str(), path.c_str()) != 0) return fail_errno(errno, path);
  return {};
}

class RealGuest : public Guest {
 public:
  Result<> set_clock(std::int64_t wall_ns) override {
    const timespec now{wall_ns / 1'000'000'000, wall_ns % 1'000'000'000};
    if (::clock_settime(CLOCK_REALTIME, &now) != 0) return fail_errno(errno, "set the clock");
    return {};
  }

  Result<> add_entropy(std::string_view bytes) override {
    struct {  // rand_pool_info of linux/random.h
      int bits, size;
      char bytes[512];
    } pool{};
    if (bytes.size() > sizeof pool.bytes) return fail(ErrorKind::invalid_argument, "invalid_field", "entropy is longer than 512 bytes");
    pool.bits = static_cast<int>(bytes.size() * 8);
    pool.size = static_cast<int>(bytes.size());
    std::memcpy(pool.bytes, bytes.data(), bytes.size());
    TRY(const Fd random, open_file("/dev/urandom", O_WRONLY));
    if (::ioctl(random.get(), RNDADDENTROPY, &pool) != 0) return fail_errno(errno, "add entropy");
    if (::ioctl(random.get(), RNDRESEEDCRNG, 0) != 0) return fail_errno(errno, "reseed the random generator");
    return {};
  }

  Result<> set_hostname(const std::string& hostname) override {
    if (::sethostname(hostname.data(), hostname.size()) != 0) return fail_errno(errno, "set the hostname");
    return write_hosts(hostname);
  }

  Result<> set_machine_id(const std::string& machine_id) override { return write_small("/etc/machine-id", machine_id + "\n", 0444); }

  Result<> set_authority(const std::string& pem) override {
    auto files = install_authority("", pem);
    auto java = install_java_authority("", pem);
    return files ? java : files;
  }

  Result<> announce(const std::string& json) override {
    ::mkdir("/run/space", 0755);
    return write_small("/run/space/load", json, 0644);
  }

  void end_old_connections(std::uint16_t keep_port) override {
    if (const std::size_t ended = agent::end_old_connections(keep_port); ended > 0) log::info("load.connections_ended", {{"count", ended}});
  }

  Result<> set_environment(const std::string& json) override {
    ::mkdir("/run/space", 0755);
    return write_small("/run/space/environment", json, 0644);  // every process of every user has it anyway
  }

  std::string hooks_folder() const override { return "/etc/space/load.d"; }

 private:
  // The line of 127.0.1.1 is ours; all others belong to the guest.
  static Result<> write_hosts(const std::string& hostname) {
    constexpr std::string_view kOurs = "127.0.1.1";
    std::string text;
    struct stat st = {};
    if (::lstat("/etc/hosts", &st) == 0 && S_ISREG(st.st_mode)) text = read_file("/etc/hosts", 1 << 20).value_or("");
    if (text.empty()) text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";
    std::string out;
    for (std::string_view rest = text; !rest.empty();) {
      const std::size_t end = std::min(rest.find('\n'), rest.size() - 1);
      if (const std::string_view line = rest.substr(0, end + 1); !line.starts_with(kOurs)) out += line;
      rest.remove_prefix(end + 1);
    }
    if (!out.ends_with('\n')) out += '\n';
    out += fmt::format("{} {:<{}}\n", kOurs, hostname, kHostnameWidth);  // always of one length
    return write_small("/etc/hosts", out, 0644);
  }
};

class NoGuest : public Guest {
 public:
  Result<> set_clock(std::int64_t) override { return {}; }
  Result<> add_entropy(std::string_view) override { return {}; }
  Result<> set_hostname(const std::string&) override { return {}; }
  Result<> set_machine_id(const std::string&) override { return {}; }
  Result<> set_authority(const std::string&) override { return {}; }
  Result<> announce(const std::string&) override { return {}; }
  void end_old_connections(std::uint16_t) override {}
  Result<> set_environment(const std::string&) override { return {}; }
  std::string hooks_folder() const override { return {}; }
};

}  // namespace

std::unique_ptr<Guest> real_guest() { return std::make_unique<RealGuest>(); }
std::unique_ptr<Guest> no_guest() { return std::make_unique<NoGuest>(); }

}  // namespace space::agent
