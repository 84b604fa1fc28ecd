#include "build/run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "base/log.h"
#include "base/random.h"
#include "build/scripts.h"

namespace space::build {
namespace {

constexpr std::size_t kLongestLine = 2000;
constexpr std::int64_t kDeepest = 14;    // layers; the sandbox and the template have files of their own above and below
constexpr std::size_t kMostLayers = 12;  // of one build
constexpr const char* kArchive = "/var/tmp/space-build-files";
constexpr const char* kSettings = "/etc/space/template.json";  // what the agent reads when it boots (src/agent/settings.h)

// The longest part of a source without a pattern: what it names among the files that were sent.
std::string without_pattern(const std::string& source) {
  const std::size_t pattern = source.find_first_of("*?[");
  std::string out =
      pattern == source.npos ? source : source.substr(0, source.rfind('/', pattern) == source.npos ? 0 : source.rfind('/', pattern));
  while (out.starts_with("./")) out.erase(0, 2);
  while (out.ends_with('/')) out.pop_back();
  return out.empty() ? "." : out;
}

// The guest's bytes as something that can stand in a log.
std::string clean(std::string_view line) {
  std::string out;
  for (const char c : line.substr(0, kLongestLine)) out += static_cast<unsigned char>(c) < 0x20 && c != '\t' ? ' ' : c;
  while (!out.empty() && out.back() == ' ') out.pop_back();
  if (is_utf8(out)) return out;
  for (char& c : out)
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  return out;
}

tl::unexpected<Error> step_failed(std::string message) {
  return fail(ErrorKind::invalid_argument, "step_failed", std::move(message),
              "see the log of the build; what stands before it is kept, so the next one begins there");
}

}  // namespace

Result<> Run::may_go_on() const {
  if (live_->cancelled) return fail(ErrorKind::cancelled, "build_cancelled", "the build was cancelled");
  if (live_->timed_out)
    return fail(ErrorKind::deadline_exceeded, "build_too_long",
                fmt::format("a build may take {} minutes", std::chrono::duration_cast<std::chrono::minutes>(b_.limits_.build).count()),
                "split it: publish a template on the way and build on that");
  if (b_.stopping_) return fail(ErrorKind::unavailable, "server_stopping", "the server is being stopped; it goes on when it is back");
  return {};
}

void Run::say(std::string message, std::string level) {
  Live& live = *live_;
  if (live.log.size() > b_.limits_.log_lines || live.bytes > b_.limits_.log_bytes) return;
  LogEntry entry{b_.parts_.clock.wall_ms(), std::move(level), at_, std::move(message)};
  live.bytes += entry.message.size() + 64;
  if (live.log.size() == b_.limits_.log_lines || live.bytes > b_.limits_.log_bytes) {
    entry.level = "warn";
    entry.message = "the log is full: what follows is not in it";
    live.bytes = b_.limits_.log_bytes + 1;
  }
  live.log.push_back(std::move(entry));
  live.changed.notify_all();
}

// Whole lines go to the log as they come.
Guest::Hear Run::hearing(bool quiet_output) {
  out_.clear();
  err_.clear();
  last_words_.clear();
  return [this, quiet_output](bool error_output, std::string_view bytes) {
    std::string& rest = error_output ? err_ : out_;
    rest += bytes;
    for (std::size_t end; (end = rest.find_first_of("\n\r")) != std::string::npos || rest.size() > kLongestLine;) {
      const std::string line = clean(std::string_view(rest).substr(0, std::min(end, kLongestLine)));
      rest.erase(0, end == std::string::npos ? kLongestLine : end + 1);
      if (line.empty()) continue;
      if (error_output) last_words_ = line;
      if (error_output || !quiet_output) say(line);
    }
  };
}

Task<> Run::go() {
  auto done = co_await work();
  if (!done) {
    const auto stopped = may_go_on();  // why it failed when its sandbox was taken away
    if (!stopped) done = stopped;
    build_.failed_step = at_;
  }
  if (!live_->sandbox.empty() && !b_.stopping_) {
    auto removed = co_await b_.remove_sandbox(build_.tenant, live_->sandbox);
    if (!removed) log::warn("build.sandbox_left", {{"build", build_.id}, {"sandbox", live_->sandbox}, {"error", removed.error()}});
    live_->sandbox.clear();
  }
  co_return done;
}

Task<> Run::work() {
  CO_TRY_VOID(co_await read_parent());
  CO_TRY_VOID(co_await read_files());
  CO_TRY_VOID(co_await make_sandbox());
  if (!have_root_ && !image_digest_.empty()) {
    CO_TRY_VOID(co_await unpack_image());
    CO_TRY_VOID(co_await keep_layer(root_));
  }
  context_ = parent_.context;
  for (std::size_t i = 0; i < build_.spec.steps.size(); ++i) {
    at_ = std::to_string(i + 1);
    CO_TRY_VOID(may_go_on());
    const Step& now = build_.spec.steps[i];
    if (i < next_) {
      say(fmt::format("[{}/{}] {} (kept)", i + 1, build_.spec.steps.size(), describe(now)));
    } else {
      say(fmt::format("[{}/{}] {}", i + 1, build_.spec.steps.size(), describe(now)));
      CO_TRY_VOID(co_await step(i));
    }
    CO_TRY(context_, after(std::move(context_), now));
    if (i >= next_ && worth_keeping_[i]) CO_TRY_VOID(co_await keep_layer(keys_[i]));
    CO_TRY_VOID(co_await b_.flush(live_));
  }
  at_ = "finalize";
  CO_TRY_VOID(may_go_on());
  co_return co_await publish();
}

Task<> Run::read_parent() {
  const Spec& spec = build_.spec;
  CO_TRY(const json::object found, co_await b_.ask(build_.tenant, "GET", "/v1/templates/" + percent_encode(spec.parent)));
  JsonReader r(found);
  r.ignore_unknown();
  parent_.reference = spec.parent;
  parent_.digest = r.text("digest", 71, 71);
  parent_.cpus = spec.cpus.value_or(r.number("cpus", 1, 1024));
  parent_.memory_mib = spec.memory_mib.value_or(r.number("memory_mib", 1, 1 << 24));
  parent_.disk_mib = spec.disk_mib.value_or(r.number("disk_mib", 1, 1 << 28));
  parent_.context.user = r.text("user", 1, 64, "user");
  parent_.context.workdir = r.text("workdir", 0, 4096, "");
  parent_.context.env = r.text_map("env", 256, 64 << 10);
  parent_.start = r.text("start", 0, kMostCommand, "");
  parent_.ready = r.text("ready", 0, kMostCommand, "");
  CO_TRY_VOID(r.done());
  // An image brings its own files; of the VM that unpacks it nothing stays.
  if (!spec.image.empty()) {
    parent_.context = Context{};
    parent_.start.clear();
    parent_.ready.clear();
  }
  say(spec.image.empty() ? fmt::format("from template {}", spec.parent) : "from an image");
  co_return Result<>();
}

// Keys are of what was sent, not of what it is called.
Task<> Run::read_files() {
  const std::string tenant = build_.tenant;
  const Spec& spec = build_.spec;
  auto look = [this, tenant, &spec]() -> Result<> {
    const auto digest_of = [&](const std::string& name) -> Result<std::string> {
      TRY(const auto digest, b_.uploads_.find(tenant, name));
      if (!digest)
        return fail(ErrorKind::not_found, "upload_missing", fmt::format("the files {} were not sent", name.substr(0, 12)),
                    "send them, then build again");
      return *digest;
    };
    if (!spec.image.empty()) {
      TRY(image_digest_, digest_of(spec.image));
    }
    for (const Step& step : spec.steps) {
      std::string digest;
      if (step.kind == StepKind::copy) {
        TRY(digest, digest_of(step.files));
      }
      digests_.push_back(std::move(digest));
    }
    return {};
  };
  CO_TRY_VOID(co_await b_.pool_.run(look));
  root_ = root_key(parent_.digest, image_digest_, parent_.cpus, parent_.memory_mib, parent_.disk_mib);
  std::string below = root_;
  std::size_t changing = 0;
  for (std::size_t i = 0; i < spec.steps.size(); ++i) {
    below = layer_key(below, spec.steps[i], digests_[i]);
    keys_.push_back(below);
    changing += changes_disk(spec.steps[i]) ? 1 : 0;
  }
  const std::size_t every = (changing + kMostLayers - 1) / kMostLayers;
  std::size_t count = 0;
  for (const Step& step : spec.steps) worth_keeping_.push_back(changes_disk(step) && (++count % every == 0 || count == changing));
  co_return Result<>();
}

// From the longest run of steps that is kept, else from the template. A layer that cannot be used any more is forgotten.
Task<> Run::make_sandbox() {
  const auto& steps = build_.spec.steps;
  std::size_t most = steps.size();
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (build_.spec.force || steps[i].force) {
      most = i;
      break;
    }
  for (std::size_t count = most + 1; count-- > 0;) {
    const std::string key = count == 0 ? root_ : keys_[count - 1];
    if (count == 0 && (image_digest_.empty() || build_.spec.force)) break;
    const Layer* kept = b_.layers_.find(build_.tenant, key);
    if (!kept) continue;
    const Layer layer = *kept;
    auto sandbox = co_await launch(layer.checkpoint);
    if (sandbox) {
      next_ = count;
      have_root_ = true;
      depth_ = layer.depth;
      b_.layers_.use(build_.tenant, key, b_.parts_.clock.wall_ms());
      co_return Result<>();
    }
    if (sandbox.error().kind == ErrorKind::unavailable || sandbox.error().kind == ErrorKind::resource_exhausted)
      co_return fail(sandbox.error());
    CO_TRY_VOID(may_go_on());
    say(fmt::format("a kept layer cannot be used any more: {}", sandbox.error().message), "warn");
    b_.layers_.drop(build_.tenant, key);
    (void)co_await b_.forget_checkpoint(build_.tenant, layer.checkpoint);
  }
  next_ = 0;
  CO_TRY_VOID(co_await launch(""));
  co_return Result<>();
}

Task<std::string> Run::launch(std::string checkpoint) {
  control::Sandbox sandbox;
  sandbox.id = new_id();
  sandbox.tenant = build_.tenant;
  sandbox.template_reference = parent_.reference;
  sandbox.cpus = parent_.cpus;
  sandbox.memory_mib = parent_.memory_mib;
  sandbox.disk_mib = parent_.disk_mib;
  sandbox.metadata = {{"space.build", build_.id}};
  sandbox.time_limit_s = std::chrono::duration_cast<std::chrono::seconds>(b_.limits_.build).count() + 600;
  sandbox.created_ms = b_.parts_.clock.wall_ms();
  json::object request;
  if (!checkpoint.empty()) {
    CO_TRY(const json::object found, co_await b_.ask(build_.tenant, "GET", "/v1/checkpoints/" + checkpoint));
    JsonReader r(found);
    r.ignore_unknown();
    sandbox.lineage = r.text("lineage", 0, 64, "");
    const std::string of = r.text("sandbox", 0, 64, "");
    CO_TRY_VOID(r.done());
    if (sandbox.lineage.empty()) sandbox.lineage = of;  // whose authority its guest trusts
    request["checkpoint"] = checkpoint;
  }
  if (b_.parts_.egress) sandbox.egress = R"({"policy":{"mode":"open"}})";
  const control::EgressSettings network{sandbox.id, sandbox.tenant, sandbox.lineage.empty() ? sandbox.id : sandbox.lineage, 1,
                                        sandbox.egress};
  control::Operation operation;
  operation.id = new_id();
  operation.tenant = build_.tenant;
  operation.sandbox = sandbox.id;
  operation.kind = control::OperationKind::create;
  operation.created_ms = sandbox.created_ms;
  operation.request = json::serialize(request);
  live_->sandbox = sandbox.id;  // from here on it is to be removed
  const std::string id = operation.id, made = sandbox.id;
  CO_TRY_VOID(co_await b_.parts_.engine.create(std::move(sandbox), std::move(operation), std::nullopt));
  if (b_.parts_.egress)
    if (auto told = co_await b_.parts_.egress->put(network); !told)
      log::warn("egress.policy_not_applied", {{"sandbox", made}, {"error", told.error()}});
  CO_TRY(const control::Operation over, co_await b_.wait_for(build_.tenant, id));
  if (!over.error) co_return made;
  (void)co_await b_.remove_sandbox(build_.tenant, made);
  live_->sandbox.clear();
  co_return fail(*over.error);
}

Task<> Run::step(std::size_t at) {
  const Step& now = build_.spec.steps[at];
  switch (now.kind) {
    case StepKind::env:
      co_return Result<>();
    case StepKind::run:
      co_return co_await run_line(now);
    case StepKind::copy:
      co_return co_await copy(now, digests_[at]);
    case StepKind::workdir: {
      CO_TRY(const Context next, after(context_, now));
      std::vector<std::string> argv{"sh", "-c", kWorkdirScript, "workdir", next.workdir, context_.user};
      co_return co_await script("make the folder", std::move(argv));
    }
    case StepKind::user: {
      std::vector<std::string> argv{"sh", "-c", kUserScript, "user", now.args[0], now.args.size() > 1 ? now.args[1] : ""};
      co_return co_await script("make the user", std::move(argv));
    }
  }
  co_return Result<>();
}

Task<> Run::run_line(const Step& now) {
  Guest::Command command;
  command.line = now.args[0];
  command.user = now.args.size() > 1 && !now.args[1].empty() ? now.args[1] : context_.user;
  command.cwd = context_.workdir;
  command.env = context_.env;
  command.limit = b_.limits_.step;
  const std::string shown = now.args[0].substr(0, 200), user = command.user;
  auto hear = hearing();
  Guest in = guest();
  auto ended = co_await in.run(std::move(command), hear);
  hear(false, "\n");
  hear(true, "\n");
  if (!ended && ended.error().code == "unknown_user")
    co_return step_failed(fmt::format("failed to run command '{}': command failed: unauthenticated: invalid username: '{}'", shown, user));
  if (!ended) co_return fail(std::move(ended).error());
  if (ended->timed_out)
    co_return step_failed(fmt::format("failed to run command '{}': it took longer than {} minutes", shown,
                                      std::chrono::duration_cast<std::chrono::minutes>(b_.limits_.step).count()));
  if (ended->signal > 0) co_return step_failed(fmt::format("failed to run command '{}': signal {}", shown, ended->signal));
  if (ended->code != 0) co_return step_failed(fmt::format("failed to run command '{}': exit status {}", shown, ended->code));
  co_return Result<>();
}

Task<> Run::script(std::string what, std::vector<std::string> argv) {
  Guest::Command command;
  command.argv = std::move(argv);
  command.user = "root";
  command.cwd = "/";
  command.limit = b_.limits_.step;
  auto hear = hearing();
  Guest in = guest();
  CO_TRY(const Guest::Ended ended, co_await in.run(std::move(command), hear));
  hear(false, "\n");
  hear(true, "\n");
  if (ended.timed_out) co_return step_failed(fmt::format("failed to {}: it took too long", what));
  if (ended.code != 0)
    co_return step_failed(
        fmt::format("failed to {}: {}", what, last_words_.empty() ? fmt::format("exit status {}", ended.code) : last_words_));
  co_return Result<>();
}

Task<> Run::copy(const Step& now, const std::string& digest) {
  const std::string tenant = build_.tenant;
  auto open = [this, tenant, digest] { return b_.uploads_.open(tenant, digest); };
  CO_TRY(Uploads::File file, co_await b_.pool_.run(open));
  Guest in = guest();
  CO_TRY_VOID(co_await in.write(kArchive, std::move(file)));
  const auto& a = now.args;
  std::vector<std::string> argv{"sh",
                                "-c",
                                kCopyScript,
                                "copy",
                                kArchive,
                                without_pattern(a[0]),
                                expand(a[1], context_.env),
                                a.size() > 2 ? a[2] : "",
                                a.size() > 3 ? a[3] : "",
                                context_.workdir,
                                context_.user};
  co_return co_await script("copy the files", std::move(argv));
}

// The host moves the archive's bytes and looks at none of them.
Task<> Run::unpack_image() {
  const std::string tenant = build_.tenant, digest = image_digest_;
  auto open = [this, tenant, digest] { return b_.uploads_.open(tenant, digest); };
  CO_TRY(Uploads::File file, co_await b_.pool_.run(open));
  say(fmt::format("sending the image ({} MiB) into the build's sandbox", file.bytes >> 20));
  Guest in = guest();
  CO_TRY_VOID(co_await in.write(kArchive, std::move(file)));
  std::vector<std::string> argv{"python3", "-c", kImageScript, kArchive};
  co_return co_await script("unpack the image", std::move(argv));
}

Task<> Run::keep_layer(const std::string& key) {
  CO_TRY_VOID(may_go_on());
  if (depth_ >= kDeepest) co_return Result<>();
  CO_TRY(const std::string checkpoint, co_await b_.take_checkpoint(build_.tenant, live_->sandbox, kLayerName + key.substr(0, 16)));
  ++depth_;
  const Layer* before = b_.layers_.find(build_.tenant, key);
  const std::string old = before ? before->checkpoint : "";
  b_.layers_.put({key, build_.tenant, checkpoint, depth_, b_.parts_.clock.wall_ms()});
  if (!old.empty()) (void)co_await b_.forget_checkpoint(build_.tenant, old);
  co_return co_await b_.forget_surplus();
}

// What the template's sandboxes begin with is written into its files; then the disk is taken, and node makes a base of it.
Task<> Run::publish() {
  const Spec& spec = build_.spec;
  const std::string start = spec.start.empty() ? parent_.start : spec.start;
  const std::string ready = spec.start.empty() && spec.ready.empty() ? parent_.ready : spec.ready;
  json::object env;
  for (const auto& [name, value] : context_.env) env[name] = value;
  json::object settings{{"user", context_.user}, {"workdir", context_.workdir}, {"env", env}};
  if (!start.empty()) settings["start"] = start;
  say("publishing the template");
  Guest in = guest();
  CO_TRY_VOID(co_await in.write(kSettings, json::serialize(settings) + "\n", "0644"));
  std::vector<std::string> argv{"sh", "-c", "sync"};
  CO_TRY_VOID(co_await script("write the disk", std::move(argv)));
  CO_TRY(const std::string checkpoint, co_await b_.take_checkpoint(build_.tenant, live_->sandbox, "build-" + build_.id));
  json::object config{{"cpus", parent_.cpus},
                      {"memory_mib", parent_.memory_mib},
                      {"disk_mib", parent_.disk_mib},
                      {"env", std::move(env)},
                      {"user", context_.user},
                      {"workdir", context_.workdir},
                      {"start", start},
                      {"ready", ready}};
  json::object order{{"operation", build_.id}, {"tenant", build_.tenant}, {"checkpoint", checkpoint},
                     {"name", build_.name},    {"tag", build_.tag},       {"config", std::move(config)}};
  say(ready.empty() ? "making its base" : "making its base: the start command runs, and the ready command is asked until it succeeds");
  auto published = co_await b_.publish_order(std::move(order));
  (void)co_await b_.forget_checkpoint(build_.tenant, checkpoint);
  if (!published) co_return fail(std::move(published).error());
  JsonReader r(*published);
  r.ignore_unknown();
  build_.digest = r.text("digest", 71, 71);
  CO_TRY_VOID(r.done());
  say(fmt::format("template {}:{} is {}", build_.name, build_.tag, build_.digest));
  co_return Result<>();
}

}  // namespace space::build
