#include "wire/warden_client.h"

#include <cerrno>
#include <chrono>
#include <fmt/format.h>
#include <mutex>
#include <optional>
#include <sys/socket.h>
#include <sys/time.h>
#include <thread>

#include "base/encoding.h"
#include "base/random.h"
#include "base/unix_socket.h"
#include "wire/warden_protocol.h"

namespace space::wire {
namespace {

constexpr std::chrono::seconds kAway{3};  // the supervisor has a new one up in a tenth of a second, unless it keeps dying
constexpr std::chrono::milliseconds kLook{20};
constexpr timeval kPatience{30, 0};  // the warden answers in milliseconds; destroy may wait some seconds for a process to end

struct Answer {
  WardenReply reply;
  std::vector<Fd> fds;
};

class WardenSocket final : public WardenClient {
 public:
  explicit WardenSocket(std::string path) : path_(std::move(path)) {}

  // One that is being started again is waited for, for some seconds from when that was first noticed; later calls fail at once.
  Result<> dial_again() {
    for (;;) {
      auto done = dial();
      if (done) {
        away_since_.reset();
        return done;
      }
      const auto now = std::chrono::steady_clock::now();
      if (!away_since_) away_since_ = now;
      if (now - *away_since_ >= kAway)
        return fail(ErrorKind::unavailable, "warden_unavailable", "the warden is not there just now", "try again in a few seconds");
      std::this_thread::sleep_for(kLook);
    }
  }

  Result<> dial() {
    TRY(Fd fd, connect_unix(path_, SOCK_SEQPACKET));
    if (::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience) != 0 ||
        ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience) != 0)
      return fail_errno(errno, "set the time limit of the warden's socket");
    socket_ = std::move(fd);
    return {};
  }

  Result<WardenInfo> hello() override {
    TRY(Answer answer, ask({.call = WardenCall::hello}, {}, 0));
    return WardenInfo{text_of(answer.reply.vmm_build), text_of(answer.reply.vmm_version), text_of(answer.reply.limits),
                      answer.reply.kvm == 1};
  }

  Result<Fd> make_net(const std::string& vm) override {
    TRY(WardenRequest request, about(WardenCall::make_net, vm));
    TRY(Answer answer, ask(request, {}, 1));
    return std::move(answer.fds[0]);
  }

  Result<std::vector<Fd>> egress_sockets(const std::string& vm) override {
    TRY(WardenRequest request, about(WardenCall::egress_sockets, vm));
    TRY(Answer answer, ask(request, {}, 3));
    return std::move(answer.fds);
  }

  Result<std::vector<Fd>> guest_sockets(const std::string& vm, int count) override {
    if (count < 1 || count > kWardenMaxGuestSockets)
      return fail(ErrorKind::invalid_argument, "bad_count", fmt::format("{} sockets asked for; 1 to {}", count, kWardenMaxGuestSockets));
    TRY(WardenRequest request, about(WardenCall::guest_sockets, vm));
    request.count = static_cast<std::uint32_t>(count);
    TRY(Answer answer, ask(request, {}, static_cast<std::size_t>(count)));
    return std::move(answer.fds);
  }

  Result<VmmProcess> start_vmm(const std::string& vm, const std::string& build, const VmLimits& limits,
                               const std::vector<std::string>& argv, std::span<const int> fds, const Fd& log) override {
    TRY(WardenRequest request, about(WardenCall::start_vmm, vm));
    if (build.size() > sizeof request.build) return fail(ErrorKind::invalid_argument, "bad_build", "a VMM build is named by 64 hex digits");
    if (fds.size() > kWardenMaxVmmFds)
      return fail(ErrorKind::too_large, "too_many_descriptors",
                  fmt::format("{} descriptors for a VMM; at most {}", fds.size(), kWardenMaxVmmFds));
    put_text(request.build, build);
    put_limits(request, limits);
    TRY_VOID(put_argv(request, argv));
    std::vector<int> passed{log.get()};
    passed.insert(passed.end(), fds.begin(), fds.end());
    TRY(Answer answer, ask(request, passed, 1, 2));
    VmmProcess process{std::move(answer.fds[0]), answer.reply.pid};
    if (answer.fds.size() == 2) process.userfault = std::move(answer.fds[1]);
    return process;
  }

  Result<VmmProcess> adopt(const std::string& vm) override {
    TRY(WardenRequest request, about(WardenCall::adopt, vm));
    TRY(Answer answer, ask(request, {}, 1));
    return VmmProcess{std::move(answer.fds[0]), answer.reply.pid};
  }

  Result<MemoryFiles> open_memory(const std::string& vm) override {
    TRY(WardenRequest request, about(WardenCall::open_memory, vm));
    TRY(Answer answer, ask(request, {}, 3));
    return MemoryFiles{std::move(answer.fds[0]), std::move(answer.fds[1]), std::move(answer.fds[2])};
  }

  Result<> freeze_file(const Fd& file, bool immutable) override {
    WardenRequest request{.call = WardenCall::freeze_file, .count = immutable ? 1U : 0U};
    const int fd = file.get();
    TRY_VOID(ask(request, std::span(&fd, 1), 0));
    return {};
  }

  Result<> set_limits(const std::string& vm, const VmLimits& limits) override {
    TRY(WardenRequest request, about(WardenCall::set_limits, vm));
    put_limits(request, limits);
    TRY_VOID(ask(request, {}, 0));
    return {};
  }

  Result<> set_cpu_weight(const std::string& vm, std::uint32_t weight) override {
    TRY(WardenRequest request, about(WardenCall::set_cpu_weight, vm));
    request.count = weight;
    TRY_VOID(ask(request, {}, 0));
    return {};
  }

  Result<> kill(const std::string& vm) override {
    TRY(WardenRequest request, about(WardenCall::kill_vmm, vm));
    TRY_VOID(ask(request, {}, 0));
    return {};
  }

  Result<> destroy(const std::string& vm) override {
    TRY(WardenRequest request, about(WardenCall::destroy, vm));
    TRY_VOID(ask(request, {}, 0));
    return {};
  }

  Result<Refusals> refusals(const std::string& vm) override {
    TRY(WardenRequest request, about(WardenCall::refusals, vm));
    TRY(Answer answer, ask(request, {}, 0));
    Refusals counts;
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = answer.reply.refused[i];
    return counts;
  }

  Result<std::vector<VmListing>> list() override {
    std::vector<VmListing> all;
    for (;;) {
      WardenRequest request{.call = WardenCall::list};
      if (!all.empty()) put_text(request.vm, all.back().vm);
      TRY(Answer answer, ask(request, {}, 0));
      for (std::uint32_t i = 0; i < answer.reply.count; ++i) {
        const WardenEntry& entry = answer.reply.entries[i];
        all.push_back({text_of(entry.vm), entry.alive != 0, entry.pid});
      }
      if (answer.reply.more == 0 || answer.reply.count == 0) return all;
    }
  }

 private:
  static Result<WardenRequest> about(WardenCall call, const std::string& vm) {
    if (!is_id(vm)) return fail(ErrorKind::invalid_argument, "bad_vm_id", "a VM id is 20 to 40 characters of a-z and 0-9");
    WardenRequest request{.call = call};
    put_text(request.vm, vm);
    return request;
  }

  static void put_limits(WardenRequest& request, const VmLimits& limits) {
    request.memory_bytes = limits.memory_bytes;
    request.file_bytes = limits.file_bytes;
    request.cpu_percent = limits.cpu_percent;
    request.tasks = limits.tasks;
  }

  // Of a call whose answer was lost it may be unknown whether it was carried out; these do no harm when they are carried out twice.
  static bool may_repeat(WardenCall call) { return call != WardenCall::make_net && call != WardenCall::start_vmm; }

  Result<Packet> exchange(std::span<const std::byte> bytes, std::span<const int> fds) {
    if (!socket_) TRY_VOID(dial_again());
    if (!send_packet(socket_, bytes, fds)) {  // a warden that was replaced meanwhile
      TRY_VOID(dial_again());
      TRY_VOID(send_packet(socket_, bytes, fds));
    }
    return receive_packet(socket_, sizeof(WardenReply));
  }

  // One request, one answer with exactly `expected` descriptors, or with `most`. One that dies under it is waited for and asked once more,
  // where that does no harm: what was begun for a sandbox would otherwise stay half done.
  Result<Answer> ask(const WardenRequest& request, std::span<const int> fds, std::size_t expected, std::size_t most = 0) {
    const std::lock_guard lock(mutex_);
    const std::span bytes(reinterpret_cast<const std::byte*>(&request), sizeof request);
    auto packet = exchange(bytes, fds);
    const bool died = !packet && (packet.error().code == "connection_lost" || packet.error().code == "peer_closed");
    if (died && may_repeat(request.call)) {
      socket_.reset();
      packet = exchange(bytes, fds);
    }
    if (!packet && packet.error().code == "warden_unavailable") return fail(packet.error());
    if (!packet) return drop(std::move(packet.error()));
    auto reply = parse_warden_reply(packet->bytes);
    if (!reply) return drop(std::move(reply.error()));
    if (reply->failed != 0) return fail(error_of(*reply));
    if (packet->fds.size() != expected && (most == 0 || packet->fds.size() != most))
      return drop(
          {ErrorKind::internal, "bad_warden_packet", fmt::format("{} descriptors came, {} were due", packet->fds.size(), expected), {}});
    return Answer{*reply, std::move(packet->fds)};
  }

  tl::unexpected<Error> drop(Error cause) {
    socket_.reset();  // an answer that comes late must not be taken for the next one
    return fail(ErrorKind::unavailable, "warden_unavailable", fmt::format("the warden did not answer: {}", cause.message), "try again");
  }

  const std::string path_;
  std::mutex mutex_;
  Fd socket_;
  std::optional<std::chrono::steady_clock::time_point> away_since_;
};

}  // namespace

Result<std::unique_ptr<WardenClient>> WardenClient::connect(const std::string& socket_path) {
  auto client = std::make_unique<WardenSocket>(socket_path);
  TRY_VOID(client->dial());
  return client;
}

}  // namespace space::wire
