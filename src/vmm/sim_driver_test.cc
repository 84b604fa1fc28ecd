#include "vmm/sim_driver.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/random.h"

namespace space::vmm {
namespace {

using namespace std::chrono_literals;

// In place of the agent: says its PID to whoever connects, and has a child that would outlive it.
constexpr const char* kAgent = R"(#!/usr/bin/env python3
import os, socket, subprocess, sys
path = sys.argv[sys.argv.index('--listen') + 1].removeprefix('unix:')
child = subprocess.Popen(['sleep', '1000'])
s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen()
while True:
    c, _ = s.accept()
    try: c.sendall(f'{os.getpid()} {os.getuid()}'.encode())
    except OSError: pass
    c.close()
)";

TEST(SimDriver, RunsTheAgentAsPidOneAndLeavesNothing) {
  TempDir dir = TempDir::make("/tmp", "space-sim-").value();
  ASSERT_TRUE(write_file_durable(dir.path() / "agent", kAgent, 0755).has_value());
  asio::io_context loop;
  BlockingPool pool(2);
  bool done = false;
  spawn(loop.get_executor(), [](std::filesystem::path folder, BlockingPool& threads, bool& finished) -> asio::awaitable<void> {
    SimOptions options;
    options.sockets = folder / "sockets";
    options.agent = folder / "agent";
    auto driver = co_await SimDriver::open(threads, options);
    EXPECT_TRUE(driver.has_value());
    EXPECT_EQ((*driver)->accelerator(), "none");
    VmSpec spec;
    spec.id = new_id();
    auto made = co_await (*driver)->spawn(std::move(spec));
    EXPECT_TRUE(made.has_value());
    auto vm = std::move(*made);
    const DeviceState state;
    Result<> step = co_await vm->load(state);
    finished = true;
    if (!step && step.error().kind == ErrorKind::permission_denied) co_return;  // no user namespaces here
    EXPECT_TRUE(step.has_value()) << (step ? "" : step.error().message);
    EXPECT_EQ(vm->state(), VmState::paused);
    step = co_await vm->resume();
    EXPECT_TRUE(step.has_value());
    const http::Connector connector = vm->agent_connector();
    auto socket = co_await connector();
    EXPECT_TRUE(socket.has_value());
    if (socket) {
      ::fcntl(socket->get(), F_SETFL, 0);
      EXPECT_EQ(read_fd(*socket, 100).value_or("?"), "1 65534");
    }
    // Its child is in the same PID namespace and ends with it.
    const std::string children = read_file(fmt::format("/proc/{0}/task/{0}/children", vm->pid()), 4096).value_or("");
    EXPECT_FALSE(children.empty());
    step = co_await vm->destroy();
    EXPECT_TRUE(step.has_value());
    co_await vm->ended();
    EXPECT_FALSE(std::filesystem::exists(fmt::format("/proc/{}", std::atoi(children.c_str()))));
    EXPECT_TRUE(std::filesystem::is_empty(folder / "sockets"));
  }(dir.path(), pool, done));
  loop.run_for(20s);
  EXPECT_TRUE(done);
  pool.join();
}

}  // namespace
}  // namespace space::vmm
