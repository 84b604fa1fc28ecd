#include "template/base_maker.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "snapshot/memory_image.h"
#include "template/base_files.h"
#include "template/command.h"
#include "wire/agent_client.h"

namespace space::tmpl {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

constexpr auto kAgentLimit = 180s;  // a cold boot takes some 3 s; a host that builds at the same time makes that ten times as long
constexpr auto kConnectTry = 1s;
constexpr auto kCommandLimit = 60s;
constexpr auto kImageToolLimit = 30s;
constexpr auto kReadyLimit = 10min;
constexpr auto kReadyPause = 1s;

struct WarmUp {
  const char* user;
  const char* line;
};
// What sandboxes do first. It fills the guest's page cache and its tables, so that a loaded guest reads nothing from its disk for
// them; programs that a template lacks are no fault. `sync` at the end leaves the disk as the page cache has it.
constexpr WarmUp kWarmUp[] = {
    {"", "true"},
    {"", "command -v python3 >/dev/null && python3 -c 'import json, os, sys, subprocess' || true"},
    {"", "command -v node >/dev/null && node -e 1 || true"},
    {"", "command -v git >/dev/null && git --version >/dev/null || true"},
    {"", "ls -l / >/dev/null; cat /etc/hostname >/dev/null; sudo -n true || true"},
    {"", "true"},
    {"root", "sync"},
};

// An empty qcow2 image. Its backing file is said when it is opened, never by a name inside.
Result<> make_overlay(const fs::path& path, std::uint32_t disk_mib) {
  Command command;
  // Subclusters: a small write into an overlay copies 4 kB from below, not a cluster.
  command.argv = {"qemu-img",
                  "create",
                  "-q",
                  "-f",
                  "qcow2",
                  "-o",
                  "extended_l2=on,cluster_size=128k,lazy_refcounts=on",
                  path.string(),
                  fmt::format("{}M", disk_mib)};
  command.time_limit = kImageToolLimit;
  return run_command(command);
}

struct Prepared {
  vmm::GuestImages images;
  vmm::VmSpec spec;
  Fd memory;
};

Result<std::shared_ptr<Prepared>> prepare(const BaseOrder& order) {
  struct stat rootfs {};
  if (::stat(order.release.rootfs.c_str(), &rootfs) != 0) return fail_errno(errno, "stat the root filesystem");
  if (static_cast<std::uint64_t>(rootfs.st_size) > std::uint64_t{order.size.disk_mib} << 20)
    return fail(ErrorKind::invalid_argument, "disk_too_small", fmt::format("this template needs a disk of {} MiB", rootfs.st_size >> 20),
                "ask for a larger disk");
  if (!order.release.disk.empty() && order.size.disk_mib < order.release.disk_mib)
    return fail(ErrorKind::invalid_argument, "disk_too_small", fmt::format("this template needs a disk of {} MiB", order.release.disk_mib),
                "ask for a larger disk");
  TRY_VOID(make_overlay(order.folder / kOverlayFile, order.size.disk_mib));
  TRY_VOID(make_overlay(order.folder / kEmptyFile, order.size.disk_mib));
  auto made = std::make_shared<Prepared>();
  TRY(made->images.kernel, open_file(order.release.kernel, O_RDONLY));
  TRY(made->images.initramfs, open_file(order.release.initramfs, O_RDONLY));
  TRY(made->memory, snapshot::new_guest_memory(std::uint64_t{order.size.memory_mib} << 20));
  TRY(Fd lower, open_file(order.release.rootfs, O_RDONLY));
  TRY(Fd upper, open_file(order.folder / kOverlayFile, O_RDWR));
  vmm::VmSpec& spec = made->spec;
  spec.id = new_id();
  spec.size = order.size;
  TRY(spec.memory, made->memory.duplicate());
  spec.memory_shared = true;
  spec.begin = vmm::VmSpec::Begin::boot;
  spec.disk.push_back({std::move(lower), vmm::DiskLayer::Format::raw, true});
  if (!order.release.disk.empty()) {
    TRY(Fd disk, open_release_disk(order.release));
    spec.disk.push_back({std::move(disk), vmm::DiskLayer::Format::qcow2, true});
  }
  spec.disk.push_back({std::move(upper), vmm::DiskLayer::Format::qcow2, false});
  return made;
}

Task<> wait_for_agent(wire::AgentClient& agent, const http::Connector& connector) {
  using namespace asio::experimental::awaitable_operators;
  const auto end = SteadyClock::now() + kAgentLimit;
  for (;;) {
    // Short tries: a connection that the guest missed while it booted is repeated by TCP only after seconds.
    auto attempt = co_await (connector() || sleep_for(kConnectTry));
    if (attempt.index() == 0 && std::get<0>(attempt)) break;
    if (SteadyClock::now() > end)
      co_return fail(ErrorKind::unavailable, "agent_not_ready", "the guest booted for minutes and its agent did not answer",
                     "look at its console in node's log");
    co_await sleep_for(50ms);
  }
  CO_TRY(const wire::AgentHealth health, co_await agent.health());
  if (health.protocol != wire::kAgentProtocol)
    co_return fail(ErrorKind::unsupported, "agent_protocol_unknown", fmt::format("the agent speaks protocol {}", health.protocol),
                   "build the template again");
  log::info("base.agent_ready", {{"agent", health.version}});
  co_return Result<>{};
}

// Runs one line to its end; gives its exit status.
Task<int> run_line(wire::AgentClient& agent, std::string user, std::string line) {
  wire::ProcessSpec spec;
  spec.session = "base";
  spec.shell = std::move(line);
  spec.user = std::move(user);
  spec.time_limit = kCommandLimit;
  CO_TRY(const std::uint32_t process, co_await agent.create(spec));
  CO_TRY(auto stream, co_await agent.attach(process, 0));
  for (;;) {
    CO_TRY(const std::vector<wire::Frame> frames, co_await stream->next());
    if (frames.empty()) co_return fail(ErrorKind::unavailable, "agent_protocol_error", "a process ended without an exit");
    if (frames.back().type != wire::FrameType::exit) continue;
    CO_TRY(const wire::ProcessExit exit, wire::decode_exit(frames.back().payload));
    co_return exit.code;
  }
}

// What the template starts serves when this succeeds: only then is the base worth saving.
Task<> wait_until_ready(wire::AgentClient& agent, std::string line) {
  const auto end = SteadyClock::now() + kReadyLimit;
  for (;;) {
    CO_TRY(const int code, co_await run_line(agent, "", line));
    if (code == 0) co_return Result<>{};
    if (SteadyClock::now() > end)
      co_return fail(ErrorKind::unavailable, "template_not_ready",
                     fmt::format("the template's ready command '{}' did not succeed in 10 minutes", line.substr(0, 200)),
                     "look at what its start command does: space run from its parent, and run it there");
    co_await sleep_for(kReadyPause);
  }
}

wire::AgentInit first_init() {
  wire::AgentInit init;
  std::array<std::byte, 64> entropy;
  random_bytes(entropy);
  init.nonce = new_id();
  init.hostname = "base";
  init.machine_id = std::string(32, '0');
  init.wall_ns = system_clock().wall_ms() * 1'000'000;
  init.entropy = std::string(as_text(entropy));
  return init;
}

// Every step once: preparing, booting, each line of the warm-up, saving, storing.
void begin(MakingProgress& progress, const char* step) {
  if (progress.step != "waiting") ++progress.done;
  progress.step = step;
  progress.of = static_cast<unsigned>(std::size(kWarmUp)) + 4;
}

// Everything between the start of the kernel and the moment to save. Without a machine (sim) there is nothing to warm up.
Task<> drive(vmm::Vm& vm, bool machine, std::string ready, std::shared_ptr<MakingProgress> progress) {
  auto executor = co_await asio::this_coro::executor;
  wire::AgentClient agent(executor, vm.agent_connector());
  const http::Connector connector = vm.agent_connector();
  CO_TRY_VOID(co_await wait_for_agent(agent, connector));
  const wire::AgentInit init = first_init();
  CO_TRY_VOID(co_await agent.init(init));
  if (machine && !ready.empty()) CO_TRY_VOID(co_await wait_until_ready(agent, std::move(ready)));
  for (const WarmUp& step : kWarmUp) {
    if (!machine) break;
    begin(*progress, "warming up");
    std::string user = step.user, line = step.line;
    CO_TRY(const int code, co_await run_line(agent, std::move(user), std::move(line)));
    if (code != 0) log::warn("base.warm_up_failed", {{"line", step.line}, {"code", code}});
  }
  CO_TRY_VOID(co_await agent.freeze());
  // A connection that the saved guest thinks open would meet a stranger with the same port in some clone.
  agent.reset();
  co_await sleep_for(200ms);
  co_return Result<>{};
}

Task<> save(vmm::Vm& vm, BlockingPool& pool, const fs::path& folder) {
  const fs::path path = folder / kStateFile;
  auto create = [path] { return open_file(path, O_RDWR | O_CREAT | O_EXCL, 0600); };
  CO_TRY(const Fd state, co_await pool.run(create));
  CO_TRY_VOID(co_await vm.save_base(state));
  co_return Result<>{};
}

Result<> complete(const BaseOrder& order, const std::string& state_key, const Fd& memory) {
  BaseManifest manifest;
  manifest.key = order.key;
  manifest.release_digest = order.release.digest;
  manifest.release_name = label_of(order.release);
  manifest.state_key = state_key;
  manifest.size = order.size;
  manifest.created_ms = system_clock().wall_ms();
  TRY(const Fd image, open_file(order.folder / kMemoryFile, O_RDWR | O_CREAT | O_EXCL, 0400));
  TRY(manifest.memory, snapshot::store_memory_image(memory, std::uint64_t{order.size.memory_mib} << 20, image));
  TRY(manifest.state, seal_file(order.folder / kStateFile));
  TRY(manifest.overlay, seal_file(order.folder / kOverlayFile));
  TRY(manifest.empty_overlay, seal_file(order.folder / kEmptyFile));
  return write_file_durable(order.folder / kManifestFile, write_manifest(manifest), 0400);
}

asio::awaitable<void> asked(std::shared_ptr<Stop> stop) {
  while (!stop->asked) co_await stop->changed.wait();
}

}  // namespace

Error node_stopping() { return {ErrorKind::unavailable, "node_stopping", "the node is being stopped", "try again when it is back"}; }

Task<> make_base(vmm::Driver& driver, BlockingPool& pool, BaseOrder given, std::shared_ptr<Stop> stop,
                 std::shared_ptr<MakingProgress> progress) {
  using namespace asio::experimental::awaitable_operators;
  auto order = std::make_shared<const BaseOrder>(std::move(given));
  begin(*progress, "preparing");
  auto first = [order] { return prepare(*order); };
  CO_TRY(std::shared_ptr<Prepared> made, co_await pool.run(first));
  made->spec.images = &made->images;
  vmm::VmSpec spec = std::move(made->spec);
  CO_TRY(std::unique_ptr<vmm::Vm> vm, co_await driver.spawn(std::move(spec)));

  begin(*progress, "booting");
  Result<> outcome = co_await vm->boot();
  if (outcome) {
    auto driven = co_await (drive(*vm, driver.accelerator() != "none", order->release.ready, progress) || vm->ended() || asked(stop));
    if (driven.index() == 0)
      outcome = std::move(std::get<0>(driven));
    else if (driven.index() == 2)
      outcome = fail(node_stopping());
    else
      outcome = fail(ErrorKind::unavailable, "vm_ended", "the virtual machine ended while its base was made",
                     "look at its console in node's log");
  }
  begin(*progress, "saving");
  if (outcome) outcome = co_await save(*vm, pool, order->folder);
  if (!outcome && !stop->asked) {
    const std::string tail = co_await vm->console_tail();
    log::error("base.failed", {{"key", order->key}, {"error", outcome.error()}, {"console", tail}});
  }
  // Before anything is read: the VMM must not write any more.
  Result<> destroyed = co_await vm->destroy();
  CO_TRY_VOID(std::move(outcome));
  CO_TRY_VOID(std::move(destroyed));
  begin(*progress, "storing");
  const std::string state_key = driver.state_key();
  auto last = [order, state_key, made] { return complete(*order, state_key, made->memory); };
  co_return co_await pool.run(last);
}

}  // namespace space::tmpl
