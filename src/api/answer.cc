#include "api/answer.h"

#include "api/idempotency.h"
#include "api/render.h"
#include "api/request.h"
#include "api/routes.h"
#include "base/random.h"

namespace space::api {
namespace {

using control::Operation;
using control::OperationKind;
using control::OperationState;
using control::Sandbox;
using std::chrono::seconds;

// The answer after waiting. An operation that failed answers with its error, and names itself.
Task<> answer_waited(Services& services, http::Exchange& exchange, Operation operation, Statuses statuses, seconds wait) {
  if (!is_finished(operation.state)) {
    CO_TRY(operation, co_await services.engine.wait(tenant_of(exchange), operation.id, wait));
  }
  std::optional<Sandbox> sandbox;
  if (auto found = co_await services.store.find_sandbox(tenant_of(exchange), operation.sandbox)) sandbox = std::move(*found);
  if (operation.state == OperationState::failed || operation.state == OperationState::cancelled) {
    const Error error = operation.error.value_or(Error{ErrorKind::internal, "operation_failed", "the operation failed", ""});
    const json::object more{{"operation", render(operation)}};
    co_return co_await exchange.reply(problem_with(error, more));
  }
  const bool done = operation.state == OperationState::succeeded;
  std::string body = render_change(operation, sandbox ? &*sandbox : nullptr);
  if (done) {  // the answer kept at the accept said 202: whoever repeats the request shall get this one
    CO_TRY(const auto key, idempotency_key(exchange));
    if (key) {
      control::KeptAnswer keep{exchange.attributes["fingerprint"], statuses.done, body, operation.id};
      (void)co_await services.store.remember_answer(tenant_of(exchange), *key, std::move(keep));
    }
  }
  http::Response response = http::json_response(done ? statuses.done : statuses.accepted, std::move(body));
  response.headers.set("Preference-Applied", "wait");
  response.headers.set("Location", "/v1/operations/" + operation.id);
  co_return co_await exchange.reply(std::move(response));
}

}  // namespace

Task<> answer_change(Services& services, http::Exchange& exchange, control::Accepted accepted, Statuses statuses, seconds wait) {
  exchange.attributes["operation"] = accepted.operation.id;
  const bool waits = wait.count() > 0 && !accepted.operation.id.empty();
  if (accepted.replay && (accepted.replay->status != statuses.accepted || !waits))
    co_return co_await exchange.reply(replayed(accepted.replay->status, std::move(accepted.replay->body)));
  if (waits)
    co_return co_await http::until_disconnected(exchange, answer_waited(services, exchange, std::move(accepted.operation), statuses, wait));
  http::Response response = http::json_response(statuses.accepted, render_change(accepted.operation, &accepted.sandbox));
  response.headers.set("Location", "/v1/operations/" + accepted.operation.id);
  co_return co_await exchange.reply(std::move(response));
}

Operation new_operation(const Services& services, const http::Exchange& exchange, OperationKind kind, std::string sandbox) {
  Operation operation;
  operation.id = new_id();
  operation.tenant = tenant_of(exchange);
  operation.sandbox = std::move(sandbox);
  operation.kind = kind;
  operation.created_ms = services.clock.wall_ms();
  return operation;
}

Task<> change_sandbox(Services& services, http::Exchange& exchange, OperationKind kind) {
  CO_TRY(std::string id, sandbox_id(exchange));
  std::string raw;
  CO_TRY(const json::object body, co_await read_json(exchange, &raw));
  JsonReader reader(body);
  CO_TRY_VOID(reader.done());
  CO_TRY(const seconds wait, preferred_wait(exchange.headers()));
  CO_TRY(auto keep, recorded(exchange, raw, 202));
  if (keep) exchange.attributes["fingerprint"] = keep->fingerprint;
  Operation operation = new_operation(services, exchange, kind, std::move(id));
  if (kind == OperationKind::remove) operation.reason = "requested";
  CO_TRY(control::Accepted accepted, co_await services.engine.change(std::move(operation), std::move(keep)));
  const Statuses statuses{202, 200};
  co_return co_await answer_change(services, exchange, std::move(accepted), statuses, wait);
}

Task<> carry_to_node(Services& services, http::Exchange& exchange, http::ProxyOptions options) {
  options.drop_prefix = "Space-";
  for (const char* name : {"Cookie", "Prefer", "Idempotency-Key", "Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"})
    options.drop_headers.emplace_back(name);
  if (const std::string& tenant = tenant_of(exchange); !tenant.empty()) {
    options.drop_headers.emplace_back("Authorization");
    options.set_headers.set("Space-Tenant", tenant);
  }
  options.set_headers.set("Space-Request", exchange.attributes["request"]);
  auto done = co_await http::forward(exchange, services.node.forwarding(), std::move(options));
  if (!done && !exchange.started() && done.error().kind == ErrorKind::unavailable)
    co_return fail(control::node_unavailable(done.error().message));
  co_return done;
}

Task<> answer_from_node(Services& services, http::Exchange& exchange, std::string target) {
  http::ProxyOptions options;
  options.target = std::move(target);
  co_return co_await carry_to_node(services, exchange, std::move(options));
}

}  // namespace space::api
