#include "cli/client.h"

#include <signal.h>

#include "cli/exit_status.h"

namespace space::cli {
namespace {

asio::awaitable<void> run_and_stop(asio::io_context& loop, const ClientCommand& command, Context& context, Result<int>& outcome) {
  outcome = co_await command(context);
  loop.stop();  // a spinner or a reader of standard input may still wait for something
}

}  // namespace

int run_client(const ClientOptions& options, const ClientCommand& command, StatusOfError status_of) {
  ::signal(SIGPIPE, SIG_IGN);
  Console console(options.json);
  const auto give_up = [&](const Error& error) {
    console.error(error);
    return status_of(error);
  };
  auto connection = find_connection(options.connection);
  if (!connection) return give_up(connection.error());
  Result<int> outcome = 0;
  {
    asio::io_context loop(1);
    auto api = ApiClient::make(loop.get_executor(), std::move(*connection));
    if (!api) return give_up(api.error());
    BlockingPool pool(4);
    Context context{loop.get_executor(), **api, console, pool};
    spawn(loop.get_executor(), run_and_stop(loop, command, context, outcome));
    loop.run();
    pool.join();
  }
  return outcome ? *outcome : give_up(outcome.error());
}

}  // namespace space::cli
