// A real agent as a plain process on a Unix socket, and what tests ask of it.
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "base/async.h"
#include "base/encoding.h"
#include "base/file.h"
#include "base/json.h"
#include "http/client.h"
#include "wire/agent_client.h"

namespace space::agent {

struct Outcome {
  std::string out, err, terminal;
  std::uint64_t dropped = 0;
  std::uint64_t first = 0, last = 0;  // sequences seen
  std::optional<wire::ProcessExit> exit;
};

class AgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = TempDir::make(std::filesystem::temp_directory_path(), "agent-test-");
    ASSERT_TRUE(made);
    folder_.emplace(std::move(*made));
    std::filesystem::permissions(folder_->path(), std::filesystem::perms(0755));
    start_agent({});
  }

  void TearDown() override {
    client_.reset();
    stop_agent();
  }

  void start_agent(std::vector<std::string> more) {
    std::vector<std::string> words{SPACE_AGENT_BINARY, "--no-init", "--listen",   "unix:" + socket_path(),
                                   "--user",           "root",      "--template", path("template.json")};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    agent_ = ::fork();
    if (agent_ == 0) {
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    client_ = std::make_unique<wire::AgentClient>(loop_.get_executor(), http::unix_connector(socket_path()));
    for (int i = 0; i < 500; ++i) {
      if (std::filesystem::exists(socket_path()) && wait(client_->health())) return;
      ::usleep(10'000);
    }
    FAIL() << "the agent does not answer";
  }

  void stop_agent() {
    if (agent_ <= 0) return;
    ::kill(agent_, SIGKILL);
    ::waitpid(agent_, nullptr, 0);
    agent_ = -1;
  }

  std::string socket_path() const { return path("agent.sock"); }
  std::string path(const std::string& name) const { return (folder_->path() / name).string(); }

  // Runs the loop until the task has ended.
  template <class T>
  Result<T> wait(asio::awaitable<Result<T>> task) {
    std::optional<Result<T>> result;
    loop_.restart();
    asio::co_spawn(loop_, std::move(task), [&](std::exception_ptr error, Result<T> value) {
      if (error) std::rethrow_exception(error);
      result.emplace(std::move(value));
      loop_.stop();
    });
    loop_.run();
    return std::move(*result);
  }

  std::uint32_t create(const wire::ProcessSpec& spec) {
    auto process = wait(client_->create(spec));
    EXPECT_TRUE(process) << describe(process.error());
    return process.value_or(0);
  }
  static wire::ProcessSpec shell(std::string line) {
    wire::ProcessSpec spec;
    spec.shell = std::move(line);
    return spec;
  }

  static void add(Outcome& outcome, const wire::Frame& frame) {
    if (outcome.first == 0) outcome.first = frame.sequence;
    outcome.last = frame.sequence;
    switch (frame.type) {
      case wire::FrameType::stdout_bytes:
        outcome.out += frame.payload;
        break;
      case wire::FrameType::stderr_bytes:
        outcome.err += frame.payload;
        break;
      case wire::FrameType::pty_bytes:
        outcome.terminal += frame.payload;
        break;
      case wire::FrameType::dropped:
        outcome.dropped += wire::decode_dropped(frame.payload).value();
        break;
      case wire::FrameType::exit:
        outcome.exit = wire::decode_exit(frame.payload).value();
        break;
      case wire::FrameType::start:
      case wire::FrameType::keepalive:
        break;
    }
  }

  static Task<Outcome> read_to_end(wire::AgentClient& client, std::uint32_t process, std::uint64_t after) {
    CO_TRY(auto stream, co_await client.attach(process, after));
    Outcome outcome;
    for (;;) {
      CO_TRY(const std::vector<wire::Frame> frames, co_await stream->next());
      if (frames.empty()) co_return outcome;
      for (const auto& frame : frames) add(outcome, frame);
    }
  }
  Outcome follow(std::uint32_t process, std::uint64_t after = 0) {
    auto outcome = wait(read_to_end(*client_, process, after));
    EXPECT_TRUE(outcome) << describe(outcome.error());
    return outcome.value_or(Outcome{});
  }
  Outcome run(const wire::ProcessSpec& spec) { return follow(create(spec)); }
  Outcome run(std::string line) { return run(shell(std::move(line))); }

  // Frames until `done` says so.
  template <class F>
  static Task<Outcome> read_until(wire::ProcessStream& stream, F done) {
    Outcome outcome;
    while (!done(outcome)) {
      CO_TRY(const std::vector<wire::Frame> frames, co_await stream.next());
      if (frames.empty()) break;
      for (const auto& frame : frames) add(outcome, frame);
    }
    co_return outcome;
  }

  Result<http::Response> ask(const std::string& method, const std::string& target, std::string body = {}, http::Headers headers = {}) {
    http::Request request;
    request.method = method;
    request.target = target;
    request.body = std::move(body);
    request.headers = std::move(headers);
    return wait(client_->http().request(std::move(request), 64 << 20));
  }
  static std::string code_of(const Result<http::Response>& response) {
    if (!response) return "transport: " + describe(response.error());
    if (response->status < 400) return "";
    return http::error_from_response(response->status, response->body).code;
  }
  static double seconds_since(std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
  }

  asio::io_context loop_;
  std::optional<TempDir> folder_;
  std::unique_ptr<wire::AgentClient> client_;
  pid_t agent_ = -1;
};

}  // namespace space::agent
