// What every client command runs in: a loop, the API, the console, and threads for what blocks.
#pragma once

#include <functional>

#include "base/async.h"
#include "cli/api_client.h"
#include "cli/connection.h"
#include "cli/console.h"
#include "cli/exit_status.h"

namespace space::cli {

struct Context {
  asio::any_io_executor executor;
  ApiClient& api;
  Console& console;
  BlockingPool& pool;  // standard input and output, local files
};

struct ClientOptions {  // given before or behind any client command
  ConnectionOptions connection;
  bool json = false;
};

using ClientCommand = std::function<Task<int>(Context&)>;

// Runs one command to its end and gives the exit status. An error is printed; `status_of` says what it becomes.
int run_client(const ClientOptions& options, const ClientCommand& command, StatusOfError status_of = exit_status_of);

}  // namespace space::cli
