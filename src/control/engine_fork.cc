// A fork: a checkpoint of the sandbox, unless one was named, then its children side by side. All of them, or none: what was made
// goes again when one could not be. Every step is idempotent by the operation, so a fork that was cut off is simply asked again.
#include "base/log.h"
#include "control/engine.h"
#include "control/engine_state.h"

namespace space::control {
namespace {

struct ForkRequest {
  std::string checkpoint;
  bool take = false;  // the checkpoint is to be made first
  std::vector<std::string> children;
  json::object env;
};

Result<ForkRequest> read_request(const std::string& text) {
  TRY(const json::object body, parse_json_object(text));
  JsonReader reader(body);
  ForkRequest out;
  out.checkpoint = reader.text("checkpoint", 1, 64);
  out.take = reader.boolean("take", false);
  out.children = reader.texts("children", 64, 64);
  if (const json::object* env = reader.object("env")) out.env = *env;
  TRY_VOID(reader.done());
  return out;
}

// The answers of calls that run side by side.
struct Together {
  explicit Together(asio::any_io_executor executor) : done(std::move(executor)) {}
  Signal done;
  std::size_t left = 0;
  std::optional<Error> error;
  std::vector<Span> spans;
};

}  // namespace

Task<NodeDone> Engine::ask_fork(Operation operation) {
  CO_TRY(const ForkRequest request, read_request(operation.request));
  NodeDone out;
  const std::int64_t began_us = clock_.monotonic_us();
  if (request.take) {
    json::object body{{"operation", operation.id}, {"checkpoint", request.checkpoint}};
    CO_TRY(out, co_await node_.act(operation.sandbox, "checkpoint", std::move(body)));
  }
  const std::int64_t offset_us = clock_.monotonic_us() - began_us;
  auto together = std::make_shared<Together>(executor_);
  together->left = request.children.size();
  for (const std::string& id : request.children) {
    Operation create = operation;
    const json::object wanted{{"checkpoint", request.checkpoint}, {"env", request.env}};
    create.request = json::serialize(wanted);
    spawn(executor_, [](Engine& engine, std::string child, Operation op, std::shared_ptr<Together> all) -> asio::awaitable<void> {
      Result<NodeDone> made;
      auto row = co_await engine.store_.find_any_sandbox(child);
      auto kept = co_await engine.store_.kept_settings(child);
      std::string own = kept ? std::move((*kept)[child]) : std::string();  // else the reconciliation brings it
      if (row && row->state == SandboxState::creating) made = co_await engine.node_.create(*row, op, std::move(own));
      if (!row && row.error().kind != ErrorKind::not_found) made = fail(row.error());
      if (made) {
        for (Span& span : made->spans) all->spans.push_back(std::move(span));
      } else if (made.error().code != "sandbox_deleted" && !all->error) {
        all->error = made.error();
      }
      --all->left;
      all->done.notify_all();
    }(*this, id, std::move(create), together));
  }
  while (together->left > 0) co_await together->done.wait();
  if (together->error) {
    // Nobody may answer just now; then the operation is asked again as a whole, and finds what is there.
    if (together->error->kind != ErrorKind::unavailable)
      for (const std::string& id : request.children) co_await take_away(id, operation.id);
    co_return fail(*together->error);
  }
  for (Span& span : together->spans) {
    span.start_us += offset_us;
    out.spans.push_back(std::move(span));
  }
  co_return out;
}

}  // namespace space::control
