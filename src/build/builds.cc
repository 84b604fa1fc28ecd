#include "build/builds.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/encoding.h"
#include "base/log.h"
#include "base/random.h"
#include "build/run.h"

namespace space::build {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOperation{15 * 60'000};  // a create may make the parent's base first
constexpr milliseconds kTidyEvery{3'600'000};

}  // namespace

Error build_not_found() {
  return {ErrorKind::not_found, "build_not_found", "there is no such build", "list what there is: GET /v1/builds"};
}

Builds::Builds(BuildParts parts, BuildLimits limits)
    : parts_(std::move(parts)),
      limits_(limits),
      files_(parts_.root / "builds"),
      uploads_(parts_.root / "uploads"),
      layers_(parts_.root / "builds" / "layers"),
      aliases_(parts_.root / "builds" / "aliases"),
      stopped_(parts_.executor) {}

Builds::~Builds() {
  pool_.stop();
  pool_.join();
}

Task<> Builds::start() {
  auto load = [this]() -> Result<std::vector<Build>> {
    TRY_VOID(layers_.load());
    TRY_VOID(aliases_.load());
    return files_.all();
  };
  CO_TRY(std::vector<Build> all, co_await pool_.run(load));
  for (Build& build : all) {
    if (build.state == BuildState::building) queue_.push_back(build.id);
    builds_[build.id] = std::move(build);
  }
  if (!queue_.empty()) log::info("builds.resumed", {{"count", queue_.size()}});
  spawn(parts_.executor, tidy_loop());
  co_return Result<>();
}

void Builds::stop() {
  stopping_ = true;
  stopped_.notify_all();
  for (const auto& [id, live] : live_) live->changed.notify_all();
}

Result<> Builds::admit(const std::string& tenant) const {
  std::size_t open = 0;
  for (const auto& [id, build] : builds_) open += build.tenant == tenant && !is_over(build.state) ? 1 : 0;
  if (open < limits_.waiting) return {};
  return fail(ErrorKind::resource_exhausted, "too_many_builds", fmt::format("{} builds of this tenant are not over", open),
              "wait for some, or cancel them");
}

Task<Build> Builds::create(Wanted wanted) {
  CO_TRY_VOID(admit(wanted.tenant));
  const auto same = [&](const auto& entry) {
    return !is_over(entry.second.state) && entry.second.name == wanted.name && entry.second.tag == wanted.tag;
  };
  if (std::any_of(builds_.begin(), builds_.end(), same))
    co_return fail(ErrorKind::conflict, "template_tag_exists", fmt::format("template {}:{} is being built", wanted.name, wanted.tag),
                   "build it under another tag");
  auto present = co_await ask(wanted.tenant, "GET", "/v1/templates/" + percent_encode(wanted.name + ":" + wanted.tag));
  if (present)
    co_return fail(ErrorKind::conflict, "template_tag_exists",
                   fmt::format("template {}:{} is published already, and stays what it is", wanted.name, wanted.tag),
                   "build it under another tag");
  if (present.error().kind != ErrorKind::not_found) co_return fail(std::move(present).error());
  Build build;
  build.id = new_id();
  build.tenant = std::move(wanted.tenant);
  build.name = std::move(wanted.name);
  build.tag = std::move(wanted.tag);
  build.alias_tags = std::move(wanted.alias_tags);
  build.spec.cpus = wanted.cpus;
  build.spec.memory_mib = wanted.memory_mib;
  build.created_ms = parts_.clock.wall_ms();
  CO_TRY_VOID(co_await save(build));
  co_return build;
}

Task<Build> Builds::begin(std::string tenant, std::string id, Spec spec) {
  CO_TRY(Build build, find(tenant, id));
  if (build.state != BuildState::waiting)
    co_return fail(ErrorKind::conflict, "build_begun", "this build has begun already", "make another one");
  build.spec = std::move(spec);
  build.state = BuildState::building;
  CO_TRY_VOID(co_await save(build));
  queue_.push_back(id);
  pump();
  co_return build;
}

Result<Build> Builds::find(const std::string& tenant, const std::string& id) const {
  const auto found = builds_.find(id);
  if (found == builds_.end() || found->second.tenant != tenant) return fail(build_not_found());
  return found->second;
}

std::vector<Build> Builds::list(const std::string& tenant) const {
  std::vector<Build> out;
  for (const auto& [id, build] : builds_)
    if (build.tenant == tenant) out.push_back(build);
  std::sort(out.begin(), out.end(), [](const Build& a, const Build& b) { return a.created_ms > b.created_ms; });
  return out;
}

Task<Build> Builds::cancel(std::string tenant, std::string id) {
  CO_TRY(Build build, find(tenant, id));
  if (is_over(build.state)) co_return build;
  if (const auto live = live_.find(id); live != live_.end()) {
    live->second->cancelled = true;
    live->second->changed.notify_all();
    co_return build;
  }
  std::erase(queue_, id);
  build.state = BuildState::cancelled;
  build.finished_ms = parts_.clock.wall_ms();
  build.error = Error{ErrorKind::cancelled, "build_cancelled", "the build was cancelled", ""};
  CO_TRY_VOID(co_await save(build));
  co_return build;
}

Task<std::vector<LogEntry>> Builds::log(std::string tenant, std::string id, std::size_t from, std::size_t most, milliseconds wait) {
  CO_TRY_VOID(find(tenant, id));
  const auto until = std::chrono::steady_clock::now() + wait;
  for (;;) {
    const auto found = live_.find(id);
    if (found == live_.end()) break;
    const std::shared_ptr<Live> live = found->second;
    const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
    if (live->log.size() > from || left.count() <= 0 || stopping_) {
      const std::size_t begin = std::min(from, live->log.size()), end = std::min(live->log.size(), begin + most);
      co_return std::vector<LogEntry>(live->log.begin() + static_cast<std::ptrdiff_t>(begin),
                                      live->log.begin() + static_cast<std::ptrdiff_t>(end));
    }
    (void)co_await live->changed.wait_for(left);
  }
  // One that waits for its turn says nothing yet.
  const auto known = builds_.find(id);
  if (known != builds_.end() && !is_over(known->second.state) && wait.count() > 0) co_await sleep_for(std::min(wait, milliseconds(500)));
  auto read = [this, id] { return files_.log(id); };
  CO_TRY(std::vector<LogEntry> all, co_await pool_.run(read));
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(from, all.size())));
  if (all.size() > most) all.resize(most);
  co_return all;
}

void Builds::pump() {
  while (tidied_ && !stopping_ && running_ < limits_.running && !queue_.empty()) {
    const std::string id = std::move(queue_.front());
    queue_.pop_front();
    ++running_;
    live_[id] = std::make_shared<Live>(parts_.executor, id);
    spawn(parts_.executor, carry_out(id));
  }
}

asio::awaitable<void> Builds::carry_out(std::string id) {
  const std::shared_ptr<Live> live = live_[id];
  Build build = builds_[id];
  build.started_ms = parts_.clock.wall_ms();
  spawn(parts_.executor, keep_time(live));
  auto clear = [this, id] { return files_.clear_log(id); };  // of an earlier try
  (void)co_await pool_.run(clear);
  Run run(*this, live, build);
  auto done = co_await run.go();
  live->over = true;
  live->changed.notify_all();
  if (stopping_ && !done) {  // unfinished in its record: the next process goes on
    live_.erase(id);
    co_return;
  }
  build.finished_ms = parts_.clock.wall_ms();
  build.state = done ? BuildState::ready : live->cancelled ? BuildState::cancelled : BuildState::failed;
  if (!done) {
    build.error = done.error();
    LogEntry last{build.finished_ms, "error", build.failed_step, done.error().message};
    live->log.push_back(std::move(last));
  }
  if (done && !build.alias_tags.empty()) {
    for (std::size_t at = 0; at < build.alias_tags.size();) {
      const std::size_t comma = std::min(build.alias_tags.find(',', at), build.alias_tags.size());
      aliases_.set(build.name, build.alias_tags.substr(at, comma - at), {build.name + ":" + build.tag, build.id, build.finished_ms});
      at = comma + 1;
    }
    auto keep = [file = aliases_.file(), text = aliases_.text()] { return Aliases::save(file, text); };
    auto kept = co_await pool_.run(keep);
    if (!kept) log::error("build.alias_not_kept", {{"build", id}, {"error", kept.error()}});
  }
  auto flushed = co_await flush(live);
  if (!flushed) log::warn("build.log_not_kept", {{"build", id}, {"error", flushed.error()}});
  for (milliseconds pause{100}; !stopping_; pause = std::min(pause * 2, milliseconds(10'000))) {
    auto saved = co_await save(build);
    if (saved) break;
    log::error("build.end_not_recorded", {{"build", id}, {"error", saved.error()}});
    co_await sleep_for(pause);
  }
  parts_.node.forget_template_sizes();
  log::info("build.finished", {{"build", id},
                               {"template", build.name + ":" + build.tag},
                               {"state", to_string(build.state)},
                               {"ms", build.finished_ms - build.started_ms},
                               {"error", build.error ? space::describe(*build.error) : std::string()}});
  live_.erase(id);
  live->changed.notify_all();
  --running_;
  pump();
}

// Ends a build whose time is over or that was cancelled: its sandbox goes, and what it was doing there with it.
asio::awaitable<void> Builds::keep_time(std::shared_ptr<Live> live) {
  const auto end = std::chrono::steady_clock::now() + limits_.build;
  while (!live->over && !stopping_) {
    const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) live->timed_out = true;
    if (live->cancelled || live->timed_out) {
      const std::string sandbox = live->sandbox, tenant = builds_[live->id].tenant;
      if (!sandbox.empty()) (void)co_await remove_sandbox(tenant, sandbox);
      if (!live->over) co_await sleep_for(milliseconds(1'000));
      continue;
    }
    (void)co_await live->changed.wait_for(std::min(left, milliseconds(60'000)));
  }
}

Task<> Builds::save(Build build) {
  auto write = [this, build] { return files_.save(build); };
  CO_TRY_VOID(co_await pool_.run(write));
  const std::string id = build.id;
  builds_[id] = std::move(build);
  co_return Result<>();
}

Task<> Builds::flush(std::shared_ptr<Live> live) {
  const std::size_t begin = live->written;
  live->written = live->log.size();
  std::vector<LogEntry> some(live->log.begin() + static_cast<std::ptrdiff_t>(begin), live->log.end());
  auto write = [this, id = live->id, some = std::move(some)] { return files_.append(id, some); };
  co_return co_await pool_.run(write);
}

Task<> Builds::forget_surplus() {
  for (const Layer& layer : layers_.surplus(limits_.layers)) {
    layers_.drop(layer.tenant, layer.key);
    (void)co_await forget_checkpoint(layer.tenant, layer.checkpoint);
  }
  auto write = [file = layers_.file(), text = layers_.text()] { return Layers::save(file, text); };
  co_return co_await pool_.run(write);
}

Task<control::Operation> Builds::wait_for(std::string tenant, std::string operation) {
  const auto end = std::chrono::steady_clock::now() + kOperation;
  for (;;) {
    CO_TRY(control::Operation now, co_await parts_.engine.wait(tenant, operation, milliseconds(30'000)));
    if (is_finished(now.state)) co_return now;
    if (stopping_ || std::chrono::steady_clock::now() > end)
      co_return fail(ErrorKind::unavailable, "operation_slow", fmt::format("operation {} is not over", operation), "build again");
  }
}

Task<> Builds::remove_sandbox(std::string tenant, std::string sandbox) {
  control::Operation operation;
  operation.id = new_id();
  operation.tenant = tenant;
  operation.sandbox = std::move(sandbox);
  operation.kind = control::OperationKind::remove;
  operation.reason = "requested";
  operation.created_ms = parts_.clock.wall_ms();
  auto accepted = co_await parts_.engine.change(std::move(operation), std::nullopt);
  if (!accepted && accepted.error().kind == ErrorKind::not_found) co_return Result<>();
  if (!accepted) co_return fail(std::move(accepted).error());
  CO_TRY(const control::Operation over, co_await wait_for(std::move(tenant), accepted->operation.id));
  if (over.error) co_return fail(*over.error);
  co_return Result<>();
}

Task<std::string> Builds::take_checkpoint(std::string tenant, std::string sandbox, std::string name) {
  const std::string checkpoint = new_id();
  const json::object request{{"checkpoint", checkpoint}, {"name", name}};
  control::Operation operation;
  operation.id = new_id();
  operation.tenant = tenant;
  operation.sandbox = std::move(sandbox);
  operation.kind = control::OperationKind::checkpoint;
  operation.created_ms = parts_.clock.wall_ms();
  operation.request = json::serialize(request);
  CO_TRY(const control::Accepted accepted, co_await parts_.engine.change(std::move(operation), std::nullopt));
  CO_TRY(const control::Operation over, co_await wait_for(std::move(tenant), accepted.operation.id));
  if (over.error) co_return fail(*over.error);
  co_return checkpoint;
}

Task<> Builds::forget_checkpoint(std::string tenant, std::string checkpoint) {
  auto gone = co_await ask(std::move(tenant), "DELETE", "/v1/checkpoints/" + checkpoint);
  if (gone || gone.error().kind == ErrorKind::not_found) co_return Result<>();
  log::warn("build.checkpoint_left", {{"checkpoint", checkpoint}, {"error", gone.error()}});
  co_return fail(std::move(gone).error());
}

Task<json::object> Builds::ask(std::string tenant, std::string method, std::string target) {
  http::Request request;
  request.method = std::move(method);
  request.target = std::move(target);
  request.headers.set("Space-Tenant", tenant);
  auto answer = co_await parts_.node.forwarding().request(std::move(request), 64 << 20);
  if (!answer) co_return fail(control::node_unavailable(answer.error().message));
  if (answer->status >= 400) co_return fail(http::error_from_response(answer->status, answer->body));
  co_return parse_json_object(answer->body.empty() ? "{}" : answer->body, 64 << 20);
}

// Making its base takes its time: the client with the long patience asks.
Task<json::object> Builds::publish_order(json::object order) {
  parts_.node.forget_template_sizes();  // that there is none of this name
  http::Request request;
  request.method = "POST";
  request.target = "/v1/templates";
  request.headers.set("Content-Type", "application/json");
  request.body = json::serialize(order);
  auto answer = co_await parts_.node.ports().request(std::move(request), 64 << 10);
  if (!answer) co_return fail(control::node_unavailable(answer.error().message));
  if (answer->status >= 400) co_return fail(http::error_from_response(answer->status, answer->body));
  co_return parse_json_object(answer->body);
}

Task<json::object> Builds::publish(Publish wanted) {
  std::string checkpoint = wanted.checkpoint;
  if (!wanted.sandbox.empty()) {
    CO_TRY(const control::Sandbox sandbox, co_await parts_.store.find_sandbox(wanted.tenant, wanted.sandbox));
    if (sandbox.state == control::SandboxState::running) {  // what programs wrote is on the disk then
      Guest::Command sync;
      sync.argv = {"sh", "-c", "sync"};
      sync.user = "root";
      sync.cwd = "/";
      sync.limit = milliseconds(60'000);
      Guest guest(parts_.node, pool_, wanted.tenant, wanted.sandbox);
      CO_TRY_VOID(co_await guest.run(std::move(sync), nullptr));
    }
    CO_TRY(checkpoint, co_await take_checkpoint(wanted.tenant, wanted.sandbox, "publish-" + wanted.operation));
  }
  json::object order{
      {"operation", wanted.operation}, {"tenant", wanted.tenant}, {"checkpoint", checkpoint}, {"name", wanted.name}, {"tag", wanted.tag}};
  auto published = co_await publish_order(std::move(order));
  if (!wanted.sandbox.empty()) (void)co_await forget_checkpoint(wanted.tenant, checkpoint);
  parts_.node.forget_template_sizes();
  co_return published;
}

Task<> Builds::receive(http::Exchange& exchange, std::string tenant, std::string name, bool is_digest) {
  if (const auto length = exchange.content_length(); length && *length > uploads_.limits().one)
    co_return fail(ErrorKind::too_large, "upload_too_large", fmt::format("one upload has at most {} MiB", uploads_.limits().one >> 20),
                   "leave out what the build does not need");
  auto begin = [this, tenant] { return uploads_.begin(tenant); };
  CO_TRY(Uploads::Incoming incoming, co_await pool_.run(begin));
  std::string piece(256 << 10, '\0');
  for (;;) {
    CO_TRY(const std::size_t got, co_await exchange.read(std::as_writable_bytes(std::span(piece))));
    if (got == 0) break;
    auto write = [&incoming, bytes = as_bytes(std::string_view(piece).substr(0, got))] { return incoming.write(bytes); };
    CO_TRY_VOID(co_await pool_.run(write));
  }
  auto commit = [&incoming, name, is_digest] { return incoming.commit(name, is_digest); };
  co_return co_await pool_.run(commit);
}

asio::awaitable<void> Builds::forget_layers_on(std::string tenant, std::string reference) {
  auto release = co_await ask(tenant, "GET", "/v1/templates/" + percent_encode(reference));
  auto listed = co_await ask(tenant, "GET", "/v1/checkpoints");
  const json::value* digest = release ? release->if_contains("digest") : nullptr;
  const json::value* items = listed ? listed->if_contains("checkpoints") : nullptr;
  if (!digest || !items || !items->is_array()) co_return;
  for (const json::value& item : items->get_array()) {
    if (!item.is_object()) continue;
    JsonReader r(item.get_object());
    r.ignore_unknown();
    const std::string id = r.text("id", 1, 64), name = r.text("name", 0, 128, ""), of = r.text("template_digest", 0, 100, "");
    if (!r.done() || !is_layer(name) || of != digest->as_string()) continue;
    std::vector<std::string> keys;
    for (const auto& [place, layer] : layers_.all())
      if (layer.tenant == tenant && layer.checkpoint == id) keys.push_back(layer.key);
    for (const std::string& key : keys) layers_.drop(tenant, key);
    (void)co_await forget_checkpoint(tenant, id);
  }
  auto write = [file = layers_.file(), text = layers_.text()] { return Layers::save(file, text); };
  if (auto saved = co_await pool_.run(write); !saved) log::warn("build.layers_not_kept", {{"error", saved.error()}});
}

// Sandboxes and checkpoints of builds that no process carries out any more; found by what they are called.
Task<> Builds::remove_leftovers() {
  CO_TRY(const auto owned, co_await parts_.store.owned_sandboxes());
  std::set<std::string> tenants;
  for (const control::Owned& one : owned) {
    tenants.insert(one.tenant);
    auto sandbox = co_await parts_.store.find_any_sandbox(one.id);
    if (!sandbox) continue;
    const auto mark = sandbox->metadata.find("space.build");
    if (mark == sandbox->metadata.end() || live_.contains(mark->second) || !is_id(mark->second)) continue;
    if (const auto known = builds_.find(mark->second); known == builds_.end() || known->second.tenant != one.tenant)
      continue;  // somebody's own word
    auto removed = co_await remove_sandbox(one.tenant, one.id);
    if (!removed) log::warn("build.sandbox_left", {{"sandbox", one.id}, {"error", removed.error()}});
  }
  for (const auto& [id, build] : builds_) tenants.insert(build.tenant);
  for (const std::string& tenant : tenants) {
    CO_TRY(const json::object answer, co_await ask(tenant, "GET", "/v1/checkpoints"));
    JsonReader r(answer);
    r.ignore_unknown();
    const json::array* items = r.array("checkpoints", 100'000);
    if (!items || !r.done()) continue;
    std::set<std::string> kept;
    for (const auto& [place, layer] : layers_.all())
      if (layer.tenant == tenant) kept.insert(layer.checkpoint);
    for (const json::value& item : *items) {
      if (!item.is_object()) continue;
      JsonReader one(item.get_object());
      one.ignore_unknown();
      const std::string id = one.text("id", 1, 64), name = one.text("name", 0, 128, "");
      if (!one.done() || kept.contains(id)) continue;
      const bool ended = name.starts_with("build-") && builds_.contains(name.substr(6)) && !live_.contains(name.substr(6));
      if (ended || is_layer(name)) (void)co_await forget_checkpoint(tenant, id);
    }
  }
  co_return Result<>();
}

asio::awaitable<void> Builds::tidy_loop() {
  while (!stopping_ && !parts_.node.reachable()) (void)co_await stopped_.wait_for(milliseconds(200));
  if (stopping_) co_return;
  // Before anything is built: afterwards a layer may be on its way that is not in the list yet.
  if (auto done = co_await remove_leftovers(); !done) log::warn("build.leftovers", {{"error", done.error()}});
  tidied_ = true;
  pump();
  while (!stopping_) {
    auto sweep = [this, now = parts_.clock.wall_ms()] { return uploads_.sweep(now); };
    if (auto swept = co_await pool_.run(sweep); !swept) log::warn("build.uploads_not_swept", {{"error", swept.error()}});
    std::vector<std::pair<std::int64_t, std::string>> over;
    for (const auto& [id, build] : builds_)
      if (is_over(build.state) || (build.state == BuildState::waiting && parts_.clock.wall_ms() - build.created_ms > 24LL * 3600 * 1000))
        over.emplace_back(build.created_ms, id);
    std::sort(over.rbegin(), over.rend());
    for (std::size_t i = limits_.kept; i < over.size(); ++i) {
      auto remove = [this, id = over[i].second] { return files_.remove(id); };
      if (co_await pool_.run(remove)) builds_.erase(over[i].second);
    }
    (void)co_await stopped_.wait_for(kTidyEvery);
  }
}

}  // namespace space::build
