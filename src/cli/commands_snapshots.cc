#include <fmt/format.h>

#include "cli/commands.h"

namespace space::cli {

Task<int> snapshots(Context& context, SnapshotOptions options) {
  const std::string target = TargetBuilder("/v1/sandboxes").segment(options.sandbox).str() + "/snapshots";
  json::object answer;
  if (options.every_s) {
    json::object body{{"every_s", *options.every_s}};
    if (options.keep) body["keep"] = *options.keep;
    CO_TRY(answer, co_await context.api.send("PUT", target, std::move(body)));
  } else {
    CO_TRY(answer, co_await context.api.get(target));
  }
  if (context.console.as_json()) {
    context.console.value(answer);
    co_return 0;
  }
  const std::int64_t every = number_of(answer, "every_s");
  context.console.line(every == 0 ? std::string("none are taken by themselves")
                                  : fmt::format("every {} s when it is written to, the newest {} stay", every, number_of(answer, "keep")));
  co_return 0;
}

}  // namespace space::cli
