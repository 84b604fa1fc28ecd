// One path out of an older disk, copied into the running sandbox. The host never opens a guest's disk: a helper VM boots from it, over an
// empty image that goes with it and without a network, and packs the path with its own tar; the sandbox unpacks it with its own. What
// passes through node on the way are bytes of one sandbox on their way into the same one, and nobody here looks into them.
#include <fmt/format.h>

#include "base/encoding.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "node/busy.h"
#include "node/sandboxes.h"

namespace space::node {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::minutes kCopyLimit{10};
constexpr std::chrono::seconds kLookLimit{30};
// tar writes over what it finds: a copy that broke off is made whole by the next one.
constexpr std::string_view kAskAgain =
    "a part of it may have come: ask again, which writes over that; when it stays so, look for a full disk or a path that changes "
    "meanwhile";
constexpr std::size_t kMostWords = 1000;  // bytes of what a tar said that went wrong

tl::unexpected<Error> bad_path(std::string_view what) {
  return fail(ErrorKind::invalid_argument, "invalid_path", std::string(what), "name one file or folder by its absolute path");
}

struct Ends {
  std::string folder, name;  // of what is packed
  std::string into;          // the folder that it comes to lie in
};

Result<Ends> ends_of(const std::string& path, const std::string& into) {
  for (const std::string* one : {&path, &into})
    if (one->size() > 4095 || one->find('\0') != std::string::npos) return bad_path("a path has at most 4095 bytes and no NUL");
  if (!path.starts_with('/') || (!into.empty() && !into.starts_with('/'))) return bad_path("paths are absolute");
  fs::path clean = fs::path(path).lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();
  if (!clean.has_filename()) return bad_path("the whole disk comes back by a restore without a path");
  Ends ends{clean.parent_path().string(), clean.filename().string(), {}};
  ends.into = into.empty() ? ends.folder : fs::path(into).lexically_normal().string();
  return ends;
}

Task<> look_for(std::shared_ptr<wire::AgentClient> agent, std::string path) {
  http::Request request;
  request.target = "/v1/files/stat?user=root&path=" + percent_encode(path);
  CO_TRY_VOID(co_await agent->http().call(std::move(request), 64 << 10));
  co_return Result<>{};
}

struct Running {
  std::uint32_t process = 0;
  std::unique_ptr<wire::ProcessStream> frames;
};

Task<Running> run(std::shared_ptr<wire::AgentClient> agent, wire::ProcessSpec spec) {
  Running running;
  CO_TRY(running.process, co_await agent->create(spec));
  CO_TRY(running.frames, co_await agent->attach(running.process, 0));
  co_return running;
}

Result<> judge(const std::optional<wire::ProcessExit>& exit, const std::string& words, std::string_view where) {
  if (exit && exit->code == 0) return {};
  return fail(ErrorKind::conflict, "path_not_copied", fmt::format("tar {} failed: {}", where, printable(words, 300)));
}

// Everything that the packing end writes goes into the unpacking end, at the pace of the slower one.
Task<> copy_path(std::shared_ptr<wire::AgentClient> from, std::shared_ptr<wire::AgentClient> to, Ends ends) {
  wire::ProcessSpec unpack, pack;
  unpack.argv = {"sh", "-c",
                 R"(mkdir -p -- "$1" && exec tar --extract --file=- --numeric-owner --xattrs --preserve-permissions --directory="$1")",
                 "sh", ends.into};
  unpack.stdin_open = true;
  pack.argv = {"tar", "--create", "--file=-", "--numeric-owner", "--xattrs", "--directory=" + ends.folder, "--", ends.name};
  for (wire::ProcessSpec* one : {&unpack, &pack}) {
    one->user = "root";
    one->cwd = "/";
  }
  CO_TRY(Running reader, co_await run(to, std::move(unpack)));
  http::Request request;
  request.method = "POST";
  request.target = fmt::format("/v1/processes/{}/stdin?close=1", reader.process);
  CO_TRY(const std::unique_ptr<http::ClientStream> pipe, co_await to->http().open(std::move(request), http::BodyKind::chunked));
  CO_TRY(Running writer, co_await run(from, std::move(pack)));
  std::string words;
  std::optional<wire::ProcessExit> packed, unpacked;
  while (!packed) {
    CO_TRY(const auto frames, co_await writer.frames->next());
    for (const wire::Frame& frame : frames) {
      if (frame.type == wire::FrameType::stdout_bytes) CO_TRY_VOID(co_await pipe->write(as_bytes(frame.payload)));
      if (frame.type == wire::FrameType::stderr_bytes && words.size() < kMostWords) words += frame.payload;
      if (frame.type == wire::FrameType::dropped) co_return judge({}, "its output was cut", "out of the snapshot");
      if (frame.type == wire::FrameType::exit) {
        CO_TRY(packed, wire::decode_exit(frame.payload));
      }
    }
    if (frames.empty()) break;
  }
  CO_TRY_VOID(judge(packed, words, "out of the snapshot"));
  CO_TRY_VOID(co_await pipe->finish_request());
  CO_TRY_VOID(co_await pipe->head());
  words.clear();
  while (!unpacked) {
    CO_TRY(const auto frames, co_await reader.frames->next());
    for (const wire::Frame& frame : frames) {
      if (frame.type == wire::FrameType::stderr_bytes && words.size() < kMostWords) words += frame.payload;
      if (frame.type == wire::FrameType::exit) {
        CO_TRY(unpacked, wire::decode_exit(frame.payload));
      }
    }
    if (frames.empty()) break;
  }
  co_return judge(unpacked, words, "into the sandbox");
}

}  // namespace

Task<Machine> Sandboxes::helper_machine(std::shared_ptr<const Checkpoint> from, Spans& spans) {
  SandboxRecord record = from->record;
  record.disks = {"disk.qcow2"};
  const std::string vm = new_id();
  CO_TRY(const BasePtr base, co_await base_of(record));
  auto prepare = [this, vm] { return parts_.records.make_pool_folder(vm); };
  CO_TRY(const auto folder, co_await parts_.disk.run(prepare));
  const auto path = folder / "disk.qcow2";
  auto file = co_await new_generation(path, base);
  Result<Machine> machine = fail(ErrorKind::internal, "no_machine", "");
  if (file)
    machine = co_await booted_machine(record, folder, vm, spans);
  else
    machine = fail(std::move(file).error());
  if (!machine) {
    auto remove = [this, vm] { return parts_.records.remove_pool_folder(vm); };
    (void)co_await parts_.disk.run(remove);
    co_return machine;
  }
  // Nobody: no tenant, so no network; none of the sandbox's environment.
  const Identity nobody{vm, "helper", std::string(32, '0'), {}, 1};
  auto activated = co_await parts_.machines.activate(*machine, nobody, spans);
  if (activated) co_return machine;
  if (auto gone = co_await parts_.machines.destroy(std::move(*machine)); !gone)
    log::error("vm.destroy_failed", {{"vm", vm}, {"error", gone.error()}});
  co_return fail(std::move(activated).error());
}

Task<Done> Sandboxes::restore_path(std::string id, std::string checkpoint, std::string path, std::string into) {
  const Busy busy(busy_, idle_);
  CO_TRY(const Ends ends, ends_of(path, into));
  const auto sandbox = find(id);
  if (!sandbox) co_return fail(ErrorKind::not_found, "sandbox_not_found", "no such sandbox");
  CO_TRY_VOID(sandbox->agent());
  Spans spans(parts_.clock);
  const std::string tenant = sandbox->record.tenant;
  auto open = [this, tenant, checkpoint] { return parts_.vault.open(tenant, checkpoint); };
  CO_TRY(Checkpoint opened, co_await parts_.disk.run(open));
  const auto from = std::make_shared<const Checkpoint>(std::move(opened));
  if (from->manifest.sandbox != id)
    co_return fail(ErrorKind::conflict, "checkpoint_of_another", "this checkpoint is of another sandbox", "name one of its own");
  auto hold = [this, tenant, from] { return parts_.vault.hold(tenant, from->record.layers, nullptr); };
  CO_TRY(const auto lease, co_await parts_.disk.run(hold));
  CO_TRY(Machine helper, co_await helper_machine(from, spans));
  const std::string vm = helper.id, wanted = (fs::path(ends.folder) / ends.name).string();

  auto looking = look_for(helper.agent, wanted);
  Result<> done = co_await ask_agent(helper, std::move(looking), kLookLimit, "look for the path");
  if (!done && done.error().kind == ErrorKind::not_found)
    done = fail(ErrorKind::not_found, "path_not_found", fmt::format("{} is not in it", printable(wanted, 200)), "look at another snapshot");
  Result<std::shared_ptr<wire::AgentClient>> agent = sandbox->agent();  // it may have gone to rest while the helper booted
  if (done && !agent) done = fail(agent.error());
  if (done) {
    sandbox->sessions.others_start();
    const Spans::Step step(spans, "copy");
    auto copying = copy_path(helper.agent, *agent, ends);
    done = co_await ask_agent(helper, std::move(copying), kCopyLimit, "copy the path");
    if (!done) {
      Error broken = std::move(done).error();
      broken.next = kAskAgain;
      done = fail(std::move(broken));
    }
  }
  if (auto gone = co_await parts_.machines.destroy(std::move(helper)); !gone)
    log::error("vm.destroy_failed", {{"vm", vm}, {"error", gone.error()}});
  if (!done) co_return fail(std::move(done).error());
  log::info("sandbox.path_restored", {{"sandbox", id}, {"checkpoint", checkpoint}, {"vm", vm}});
  co_return Done{sandbox->record, spans.take()};
}

}  // namespace space::node
