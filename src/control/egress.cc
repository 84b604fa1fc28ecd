#include "control/egress.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/encoding.h"
#include "base/log.h"
#include "base/random.h"
#include "control/store.h"

namespace space::control {
namespace {

constexpr std::size_t kPoliciesLimit = 64 << 20;  // the policies of all sandboxes

http::ClientOptions options() {
  http::ClientOptions out;
  out.connect_timeout = std::chrono::seconds(2);
  out.head_timeout = std::chrono::seconds(15);
  return out;
}

// What the gateway knows of a sandbox, for reconcile().
struct Known {
  const json::object* item = nullptr;  // of the answer
  std::int64_t generation = 0;
  std::vector<std::string> changes;  // that nobody here will bring to their end
};

std::string sandbox_target(const std::string& sandbox) { return "/sandboxes/" + percent_encode(sandbox); }

std::string change_target(const std::string& sandbox, const std::string& change) {
  return sandbox_target(sandbox) + "/changes/" + percent_encode(change);
}

Result<json::object> document_of(const EgressSettings& settings) {
  TRY(json::object body, parse_json_object(settings.document, 8 << 20));
  body["tenant"] = settings.tenant;
  body["lineage"] = settings.lineage;
  body["generation"] = settings.generation;
  return body;
}

// The other way round, of the gateway's answer; nothing where it never had a policy.
Result<std::optional<EgressSettings>> settings_of(const json::object& item) {
  JsonReader reader(item, "sandboxes");
  reader.ignore_unknown();
  EgressSettings out;
  out.sandbox = reader.text("sandbox", 1, 64);
  out.generation = reader.number("generation", 0, INT64_MAX, 0);
  if (out.generation == 0) {
    TRY_VOID(reader.done());
    return std::optional<EgressSettings>();
  }
  out.tenant = reader.text("tenant", 1, 64);
  out.lineage = reader.text("lineage", 1, 64);
  TRY_VOID(reader.done());
  json::object document;
  for (const char* field : {"policy", "limits", "credentials"})
    if (const json::value* value = item.if_contains(field)) document[field] = *value;
  out.document = json::serialize(document);
  return std::optional(std::move(out));
}

// The gateway's settings are later than the store's, whose database was lost since.
asio::awaitable<void> adopt(Store& store, const json::object& item) {
  auto later = settings_of(item);
  if (!later || !*later) co_return;
  const std::string sandbox = (*later)->sandbox;
  const std::int64_t generation = (*later)->generation;
  auto adopted = co_await store.adopt_egress(std::move(**later));
  if (!adopted)
    log::warn("egress.policy_not_adopted", {{"sandbox", sandbox}, {"error", adopted.error()}});
  else if (*adopted)
    log::warn("egress.policy_adopted", {{"sandbox", sandbox}, {"generation", generation}});
}

}  // namespace

Error egress_unavailable(std::string_view why) {
  return {ErrorKind::unavailable, "egress_unavailable", fmt::format("the egress gateway cannot be reached: {}", why),
          "try again in a moment; sandboxes have no network meanwhile"};
}

Egress::Egress(asio::any_io_executor executor, std::string socket_path)
    : client_(executor, http::unix_connector(socket_path), options()),
      forwarding_(executor, http::unix_connector(socket_path), options()) {}

Task<json::object> Egress::ask(std::string method, std::string target, std::string body) {
  http::Request request;
  request.method = std::move(method);
  request.target = std::move(target);
  if (!body.empty()) request.headers.set("Content-Type", "application/json");
  request.body = std::move(body);
  auto answer = co_await client_.request(std::move(request), kPoliciesLimit);
  if (!answer) co_return fail(egress_unavailable(answer.error().message));
  if (answer->status >= 400) co_return fail(http::error_from_response(answer->status, answer->body));
  if (answer->body.empty()) co_return json::object();
  auto parsed = parse_json_object(answer->body, kPoliciesLimit);
  if (!parsed)
    co_return fail(ErrorKind::internal, "egress_answer_invalid", "the gateway's answer cannot be read: " + parsed.error().message,
                   "see egress's log");
  co_return std::move(*parsed);
}

Task<> Egress::check(std::string document) {
  CO_TRY(json::object body, parse_json_object(document, 8 << 20));
  body["method"] = "GET";
  body["url"] = "https://policy-check.invalid/";
  CO_TRY_VOID(co_await ask("POST", "/explain", json::serialize(body)));
  co_return Result<>();
}

Task<std::unique_ptr<PolicyChange>> Egress::announce(std::string sandbox) {
  auto change = std::make_unique<PolicyChange>(under_way_, new_id());
  CO_TRY_VOID(co_await ask("PUT", change_target(sandbox, change->id())));
  co_return change;
}

Task<> Egress::conclude(EgressSettings settings, std::string change) {
  std::string sandbox = settings.sandbox;
  std::vector<std::string> settles{change};
  auto done = co_await put(std::move(settings), std::move(settles));
  if (done || done.error().code != "stale_generation") co_return done;
  co_await withdraw(std::move(sandbox), std::move(change));  // a later change is in force
  co_return Result<>();
}

asio::awaitable<void> Egress::withdraw(std::string sandbox, std::string change) {
  const auto done = co_await ask("DELETE", change_target(sandbox, change));
  if (!done) log::warn("egress.change_not_withdrawn", {{"sandbox", sandbox}, {"error", done.error()}});
}

Task<> Egress::put(EgressSettings settings, std::vector<std::string> settles) {
  CO_TRY(json::object body, document_of(settings));
  if (!settles.empty()) body["settles"] = json::array(settles.begin(), settles.end());
  CO_TRY_VOID(co_await ask("PUT", sandbox_target(settings.sandbox), json::serialize(body)));
  co_return Result<>();
}

Task<> Egress::remove(std::string sandbox) {
  CO_TRY_VOID(co_await ask("DELETE", sandbox_target(sandbox)));
  co_return Result<>();
}

Task<> Egress::reconcile(Store& store, bool complete) {
  // The gateway first: what the store has by then is newer, never older.
  CO_TRY(const json::object answer, co_await ask("GET", "/sandboxes"));
  std::map<std::string, Known> known;
  JsonReader top(answer);
  top.ignore_unknown();
  if (const json::array* list = top.array("sandboxes", 1'000'000))
    for (const json::value& item : *list) {
      if (!item.is_object()) continue;
      JsonReader reader(item.get_object(), "sandboxes");
      reader.ignore_unknown();
      std::string id = reader.text("sandbox", 1, 64);
      Known one;
      one.item = &item.get_object();
      one.generation = reader.number("generation", 0, INT64_MAX, 0);
      if (const json::array* changes = reader.array("changes", 1'000))
        for (const json::value& change : *changes)
          if (change.is_string() && !under_way_->contains(std::string(change.get_string()))) one.changes.emplace_back(change.get_string());
      if (reader.done()) known[std::move(id)] = std::move(one);
    }
  // Then the store, which has what came of those changes: they are over.
  CO_TRY(const auto wanted, co_await store.all_egress());
  CO_TRY(const auto owned, co_await store.owned_sandboxes());
  std::set<std::string> alive;
  for (const Owned& one : owned) alive.insert(one.id);
  std::set<std::string> current;  // where the gateway's is not later than the store's
  for (const EgressSettings& settings : wanted) {
    const auto found = known.find(settings.sandbox);
    std::vector<std::string> settles;
    if (found != known.end()) {
      if (found->second.generation <= settings.generation) {
        current.insert(settings.sandbox);
        settles = std::exchange(found->second.changes, {});
      }
      if (found->second.generation >= settings.generation && settles.empty()) continue;
    }
    if (auto put_there = co_await put(settings, std::move(settles)); !put_there) {
      log::warn("egress.policy_not_applied", {{"sandbox", settings.sandbox}, {"error", put_there.error()}});
      // One that waits for a change of somebody here keeps the others from nothing: whoever makes that change tells of its end.
      if (put_there.error().kind == ErrorKind::unavailable && put_there.error().code != "policy_held") co_return fail(put_there.error());
    }
  }
  for (const auto& [id, one] : known) {
    if (alive.contains(id)) {
      if (!current.contains(id)) co_await adopt(store, *one.item);
      for (const std::string& change : one.changes) co_await withdraw(id, change);
    } else if (complete) {
      auto removed = co_await remove(id);
      if (!removed) log::warn("egress.not_removed", {{"sandbox", id}, {"error", removed.error()}});
    }
  }
  co_return Result<>();
}

}  // namespace space::control
