#include <fmt/format.h>

#include "base/digest.h"
#include "base/json.h"
#include "base/random.h"
#include "http/sse.h"
#include "node/routes.h"

namespace space::node {
namespace {

constexpr std::size_t kCreateLimit = 2 << 20;  // an environment and what is kept at their longest, with what JSON makes of them
constexpr std::size_t kMaxOperation = 128;
constexpr std::int64_t kLongestEvery = 7 * 86'400, kMostSnapshots = 10'000;

std::optional<std::uint32_t> narrow(std::optional<std::int64_t> number) {
  if (!number) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

bool is_hostname(std::string_view text) {
  if (text.empty() || text.size() > 63 || text.front() == '-' || text.back() == '-') return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

bool is_environment_name(std::string_view name) {
  return !name.empty() && name.size() <= 256 && name.find('=') == name.npos && name.find('\0') == name.npos;
}

Result<CreateRequest> read_create(const std::string& id, const json::object& body) {
  if (!is_id(id)) return fail(ErrorKind::invalid_argument, "invalid_id", "a sandbox's id has 20 to 40 characters of a-z and 0-9");
  JsonReader in(body);
  CreateRequest request;
  request.id = id;
  request.operation = in.text("operation", 1, kMaxOperation);
  request.tenant = in.text("tenant", 1, 128);
  request.template_reference = in.text("template", 1, 256, "base");
  request.size.cpus = narrow(in.optional_number("cpus", 1, 64));
  request.size.memory_mib = narrow(in.optional_number("memory_mib", 128, 1 << 20));
  request.size.disk_mib = narrow(in.optional_number("disk_mib", 256, 1 << 24));
  request.env = in.text_map("env", 256, 64 << 10);
  for (const auto& [name, value] : request.env)
    if (!is_environment_name(name) || value.find('\0') != value.npos) in.reject("env", "must hold names without '=' and texts without NUL");
  request.checkpoint = in.text("checkpoint", 0, 40, "");
  if (!request.checkpoint.empty() && !is_id(request.checkpoint)) in.reject("checkpoint", "must be a checkpoint's id");
  request.kept = in.text("kept", 0, kMostKept, "");
  request.hostname = in.text("hostname", 0, 63, "");
  if (!request.hostname.empty() && !is_hostname(request.hostname))
    in.reject("hostname", "must be a host name of a-z, 0-9 and inner dashes");
  TRY_VOID(in.done());
  return request;
}

Result<std::string> read_operation(const json::object& body) {
  JsonReader in(body);
  std::string operation = in.text("operation", 1, kMaxOperation);
  TRY_VOID(in.done());
  return operation;
}

json::object done_json(const Done& done) {
  return {{"id", done.record.id},           {"state", to_string(done.record.state)}, {"template_digest", done.record.template_digest},
          {"epoch", done.record.epoch},     {"cpus", done.record.size.cpus},         {"memory_mib", done.record.size.memory_mib},
          {"spans", spans_json(done.spans)}};
}

Task<> put(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const json::object body, co_await read_object(exchange, kCreateLimit));
  CO_TRY(CreateRequest request, read_create(exchange.param("id"), body));
  CO_TRY(const Done done, co_await parts.sandboxes.create(std::move(request)));
  co_return co_await reply_json(exchange, 200, done_json(done));
}

Task<> remove_sandbox(http::Exchange& exchange, RouteParts& parts) {
  const std::string id = exchange.param("id");
  std::vector<Span> spans;
  if (is_id(id)) {
    CO_TRY(spans, co_await parts.sandboxes.remove(id, exchange.target().query_value("operation").value_or("")));
  }
  json::object body{{"spans", spans_json(spans)}};
  co_return co_await reply_json(exchange, 200, std::move(body));
}

using Change = Task<Done> (Sandboxes::*)(std::string id, std::string operation);

Task<> change(http::Exchange& exchange, RouteParts& parts, Change what) {
  CO_TRY(const json::object body, co_await read_object(exchange, 4 << 10));
  CO_TRY(std::string operation, read_operation(body));
  const std::string id = exchange.param("id");
  auto task = (parts.sandboxes.*what)(id, std::move(operation));
  CO_TRY(const Done done, co_await std::move(task));
  co_return co_await reply_json(exchange, 200, done_json(done));
}

struct CheckpointRequest {
  std::string operation, checkpoint, name;
};

Result<CheckpointRequest> read_checkpoint(const json::object& body) {
  JsonReader in(body);
  CheckpointRequest request;
  request.operation = in.text("operation", 1, kMaxOperation);
  request.checkpoint = in.text("checkpoint", 20, 40);
  request.name = in.text("name", 0, 128, "");
  if (!is_id(request.checkpoint)) in.reject("checkpoint", "must be a checkpoint's id");
  TRY_VOID(in.done());
  return request;
}

Task<> checkpoint(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const json::object body, co_await read_object(exchange, 4 << 10));
  CO_TRY(CheckpointRequest request, read_checkpoint(body));
  CO_TRY(const Done done, co_await parts.sandboxes.checkpoint(exchange.param("id"), request.operation, request.checkpoint, request.name));
  co_return co_await reply_json(exchange, 200, done_json(done));
}

Task<> snapshot(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const json::object body, co_await read_object(exchange, 4 << 10));
  CO_TRY(CheckpointRequest request, read_checkpoint(body));
  Sandboxes::SnapshotOrder order{request.checkpoint, request.name, false};
  CO_TRY(const Done done, co_await parts.sandboxes.snapshot(exchange.param("id"), std::move(order)));
  co_return co_await reply_json(exchange, 200, done_json(done));
}

struct UpdateRequest {
  std::string operation;
  SandboxChanges changes;
};

Result<UpdateRequest> read_update(const json::object& body) {
  JsonReader in(body);
  UpdateRequest request;
  request.operation = in.text("operation", 1, kMaxOperation);
  request.changes.cpus = narrow(in.optional_number("cpus", 1, 64));
  request.changes.memory_mib = narrow(in.optional_number("memory_mib", 128, 1 << 20));
  if (const json::object* env = in.object("env")) {
    if (env->size() > 256) in.reject("env", "must have at most 256 names");
    for (const auto& item : *env) {
      const json::value& value = item.value();
      const bool good = value.is_null() || (value.is_string() && value.get_string().size() <= 64 << 10 &&
                                            std::string_view(value.get_string()).find('\0') == std::string_view::npos);
      if (!good || !is_environment_name(item.key())) in.reject("env", "must map names without '=' to texts without NUL, or null");
      request.changes.env[item.key()] = value.is_string() ? std::optional<std::string>(value.get_string()) : std::nullopt;
    }
  }
  TRY_VOID(in.done());
  return request;
}

Task<> update(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const json::object body, co_await read_object(exchange, kCreateLimit));
  CO_TRY(UpdateRequest request, read_update(body));
  CO_TRY(const Done done, co_await parts.sandboxes.update(exchange.param("id"), request.operation, std::move(request.changes)));
  co_return co_await reply_json(exchange, 200, done_json(done));
}

Task<> restore(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const json::object body, co_await read_object(exchange, 16 << 10));
  JsonReader paths(body);
  paths.ignore_unknown();
  const std::string path = paths.text("path", 0, 4095, ""), into = paths.text("into", 0, 4095, "");
  CO_TRY_VOID(paths.done());
  json::object rest = body;
  rest.erase("path");
  rest.erase("into");
  CO_TRY(CheckpointRequest request, read_checkpoint(rest));
  const std::string id = exchange.param("id");
  auto task = path.empty() ? parts.sandboxes.restore(id, request.operation, request.checkpoint)
                           : parts.sandboxes.restore_path(id, request.checkpoint, path, into);
  CO_TRY(const Done done, co_await std::move(task));
  co_return co_await reply_json(exchange, 200, done_json(done));
}

json::object snapshots_json(const SandboxRecord& record) { return {{"every_s", record.snapshot_every_s}, {"keep", record.snapshot_keep}}; }

Task<> get_snapshots(http::Exchange& exchange, RouteParts& parts) {
  const auto sandbox = parts.sandboxes.find(exchange.param("id"));
  if (!sandbox) co_return fail(ErrorKind::not_found, "sandbox_not_found", "no such sandbox");
  co_return co_await reply_json(exchange, 200, snapshots_json(sandbox->record));
}

Task<> put_snapshots(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const json::object body, co_await read_object(exchange, 4 << 10));
  JsonReader in(body);
  const std::int64_t every_s = in.number("every_s", 0, kLongestEvery), keep = in.number("keep", 1, kMostSnapshots, kSnapshotsKept);
  CO_TRY_VOID(in.done());
  CO_TRY(const Done done, co_await parts.sandboxes.set_snapshots(exchange.param("id"), every_s, keep));
  co_return co_await reply_json(exchange, 200, snapshots_json(done.record));
}

Task<> list_sandboxes(http::Exchange& exchange, RouteParts& parts) {
  json::array all;
  const Instant now = Instant::clock::now();
  for (const auto& sandbox : parts.sandboxes.all()) {
    const SandboxRecord& record = sandbox->record;
    json::object one = sandbox_json(record);
    one["idle_ms"] = sandbox->idle_ms(now);
    json::array worked;  // percent and ms by turns: a guest decides how many there are, up to a hundred
    for (const GuestWork::Height& height : sandbox->work.heights()) {
      worked.emplace_back(height.percent);
      worked.emplace_back(unused_ms(height.last, now));
    }
    if (!worked.empty()) one["worked"] = std::move(worked);
    if (!record.kept.empty()) one["kept_digest"] = digest_name(sha256(record.kept));
    all.push_back(std::move(one));
  }
  json::object body{{"sandboxes", std::move(all)}};
  co_return co_await reply_json(exchange, 200, std::move(body));
}

Task<> get_sandbox(http::Exchange& exchange, RouteParts& parts) {
  const auto sandbox = parts.sandboxes.find(exchange.param("id"));
  if (!sandbox) co_return fail(ErrorKind::not_found, "sandbox_not_found", "no such sandbox");
  json::object body = sandbox_json(sandbox->record);
  body["created_ms"] = sandbox->record.created_ms;
  body["kept"] = sandbox->record.kept;
  co_return co_await reply_json(exchange, 200, std::move(body));
}

Task<> put_kept(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const json::object body, co_await read_object(exchange, kCreateLimit));
  JsonReader in(body);
  std::string kept = in.text("kept", 0, kMostKept);
  CO_TRY_VOID(in.done());
  CO_TRY_VOID(co_await parts.sandboxes.set_kept(exchange.param("id"), std::move(kept)));
  co_return co_await reply_json(exchange, 200, json::object{});
}

}  // namespace

json::array spans_json(const std::vector<Span>& spans) {
  json::array out;
  for (const Span& s : spans) out.push_back(json::object{{"name", s.name}, {"start_us", s.start_us}, {"duration_us", s.duration_us}});
  return out;
}

json::object sandbox_json(const SandboxRecord& r) {
  json::object out{{"id", r.id},
                   {"tenant", r.tenant},
                   {"state", to_string(r.state)},
                   {"template", r.template_reference},
                   {"template_digest", r.template_digest},
                   {"cpus", r.size.cpus},
                   {"memory_mib", r.size.memory_mib},
                   {"disk_mib", r.size.disk_mib},
                   {"epoch", r.epoch},
                   {"created_at", rfc3339(r.created_ms)}};
  if (!r.end_reason.empty()) out["end_reason"] = r.end_reason;
  return out;
}

Task<json::object> read_object(http::Exchange& exchange, std::size_t limit) {
  CO_TRY(const std::string body, co_await exchange.read_body(limit));
  if (body.empty()) co_return json::object{};
  co_return parse_json_object(body, limit);
}

Task<> reply_json(http::Exchange& exchange, int status, json::value body) {
  co_return co_await exchange.reply(http::json_response(status, json::serialize(body)));
}

void add_sandbox_routes(http::Router& router, RouteParts& parts) {
  router.add("GET", "/v1/sandboxes", [&parts](http::Exchange& e) { return list_sandboxes(e, parts); });
  router.add("GET", "/v1/sandboxes/{id}", [&parts](http::Exchange& e) { return get_sandbox(e, parts); });
  router.add("PUT", "/v1/sandboxes/{id}", [&parts](http::Exchange& e) { return put(e, parts); });
  router.add("DELETE", "/v1/sandboxes/{id}", [&parts](http::Exchange& e) { return remove_sandbox(e, parts); });
  constexpr std::pair<const char*, Change> kChanges[] = {{"pause", &Sandboxes::pause},     {"resume", &Sandboxes::resume},
                                                         {"suspend", &Sandboxes::suspend}, {"stop", &Sandboxes::stop},
                                                         {"wake", &Sandboxes::wake},       {"start", &Sandboxes::start}};
  for (const auto& [verb, what] : kChanges)
    router.add("POST", std::string("/v1/sandboxes/{id}/") + verb,
               [&parts, what = what](http::Exchange& e) { return change(e, parts, what); });
  router.add("POST", "/v1/sandboxes/{id}/checkpoint", [&parts](http::Exchange& e) { return checkpoint(e, parts); });
  router.add("POST", "/v1/sandboxes/{id}/snapshot", [&parts](http::Exchange& e) { return snapshot(e, parts); });
  router.add("GET", "/v1/sandboxes/{id}/snapshots", [&parts](http::Exchange& e) { return get_snapshots(e, parts); });
  router.add("PUT", "/v1/sandboxes/{id}/snapshots", [&parts](http::Exchange& e) { return put_snapshots(e, parts); });
  router.add("PUT", "/v1/sandboxes/{id}/kept", [&parts](http::Exchange& e) { return put_kept(e, parts); });
  router.add("POST", "/v1/sandboxes/{id}/restore", [&parts](http::Exchange& e) { return restore(e, parts); });
  router.add("POST", "/v1/sandboxes/{id}/update", [&parts](http::Exchange& e) { return update(e, parts); });
}

}  // namespace space::node
