// The role as a process of its own: what it refuses to start with, what it leaves on disk, and that nothing is lost or done twice
// when it is killed at any moment.
#include <csignal>
#include <cstdlib>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api.h"
#include "api/testing.h"
#include "base/random.h"

extern char** environ;

namespace space::api {
namespace {

using control::testing::FakeNode;
using control::testing::run;
using std::chrono::milliseconds;

// The other process: this test program again, running only this.
TEST(ApiProcess, DISABLED_Serve) {
  const char* folder = std::getenv("SPACE_API_TEST_FOLDER");
  const char* port = std::getenv("SPACE_API_TEST_PORT");
  ASSERT_TRUE(folder && port);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ApiConfig config;
  config.data_dir = folder;
  config.node_socket = std::filesystem::path(folder) / "node.sock";
  config.address_file = std::filesystem::path(folder) / "address";
  config.port = static_cast<std::uint16_t>(std::atoi(port));
  std::exit(api::run(config));
}

class RunTest : public ::testing::Test {
 protected:
  RunTest()
      : folder_(std::move(*TempDir::make(std::filesystem::temp_directory_path(), "space-run-"))),
        fake_(loop_.get_executor(), folder_.path() / "node.sock") {
    auto listener = http::listen_tcp("127.0.0.1", 0);
    port_ = *http::local_port(*listener);
    fake_.up();
    make_client();
  }
  ~RunTest() override {
    if (child_ > 0) end(SIGKILL);
  }

  void make_client() {
    http::ClientOptions options;
    options.connect_timeout = milliseconds(1'000);
    options.head_timeout = milliseconds(5'000);
    client_ = std::make_unique<http::Client>(loop_.get_executor(), http::tcp_connector("127.0.0.1", port_), options);
  }
  void start() {
    ::setenv("SPACE_API_TEST_FOLDER", folder_.path().c_str(), 1);
    ::setenv("SPACE_API_TEST_PORT", std::to_string(port_).c_str(), 1);
    const char* argv[] = {"api_test", "--gtest_also_run_disabled_tests", "--gtest_filter=ApiProcess.DISABLED_Serve", "--gtest_brief=1",
                          nullptr};
    ASSERT_EQ(::posix_spawn(&child_, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(argv), environ), 0);
  }
  int end(int signal) {
    int status = 0;
    ::kill(child_, signal);
    ::waitpid(child_, &status, 0);
    child_ = 0;
    return status;
  }
  Task<http::Response> ask(std::string method, std::string target, std::string key = {}, std::string idempotency = {}) {
    http::Request out;
    out.method = std::move(method);
    out.target = std::move(target);
    if (!key.empty()) out.headers.set("Authorization", "Bearer " + key);
    if (!idempotency.empty()) out.headers.set("Idempotency-Key", idempotency);
    co_return co_await client_->request(std::move(out));
  }
  bool healthy() {
    for (int i = 0; i < 2'000; ++i) {
      auto answer = run(loop_, ask("GET", "/v1/health"));
      if (answer && answer->status == 200) return true;
      spin(milliseconds(5));
    }
    return false;
  }
  void spin(milliseconds time) {
    loop_.restart();
    loop_.run_for(time);
  }
  std::string first_key() const {
    auto text = read_file(folder_.path() / "first.key", 256);
    if (!text) return {};
    while (text->ends_with('\n')) text->pop_back();
    return *text;
  }

  asio::io_context loop_;
  TempDir folder_;
  FakeNode fake_;
  std::uint16_t port_ = 0;
  pid_t child_ = 0;
  std::unique_ptr<http::Client> client_;
};

TEST_F(RunTest, AnAddressForOthersNeedsTls) {
  ApiConfig config;
  config.data_dir = folder_.path() / "data";
  for (const char* address : {"0.0.0.0", "::", "10.1.2.3", "localhost", ""}) {
    config.address = address;
    EXPECT_EQ(api::run(config), 1) << address;
  }
  config.address = "127.0.0.1";
  config.tls_certificate = "/nonexistent/only-one";
  EXPECT_EQ(api::run(config), 1);
  EXPECT_FALSE(std::filesystem::exists(config.data_dir)) << "nothing is written before the settings are checked";
}

TEST_F(RunTest, TheFirstStartWritesAKeyAndTheEndIsClean) {
  start();
  ASSERT_TRUE(healthy());
  const auto file = folder_.path() / "first.key";
  struct stat info {};
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  const std::string key = first_key();
  EXPECT_EQ(run(loop_, ask("GET", "/v1/sandboxes", key))->status, 200);
  EXPECT_EQ(*read_file(folder_.path() / "address", 100), "http://127.0.0.1:" + std::to_string(port_) + "\n");
  EXPECT_EQ(std::filesystem::status(folder_.path() / "control").permissions(), std::filesystem::perms::owner_all);
  const int status = end(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "address"));
  start();
  ASSERT_TRUE(healthy());
  EXPECT_EQ(first_key(), key);
  EXPECT_EQ(run(loop_, ask("GET", "/v1/sandboxes", key))->status, 200) << "the same key after a restart";
  end(SIGTERM);
  std::filesystem::remove(file);  // read and put away by its owner: no second first key is made
  start();
  ASSERT_TRUE(healthy());
  EXPECT_EQ(run(loop_, ask("GET", "/v1/sandboxes", key))->status, 200);
  EXPECT_FALSE(std::filesystem::exists(file));
}

// A client that repeats its request with the same key until it is answered.
struct Job {
  bool removes = false;
  std::string sandbox;
  bool done = false;
};

asio::awaitable<void> carry_out(std::function<Task<http::Response>(std::string, std::string, std::string)> ask, Job& job) {
  const std::string create_key = new_id(), remove_key = new_id();
  while (job.sandbox.empty()) {
    auto answer = co_await ask("POST", "/v1/sandboxes", create_key);
    if (answer && answer->status == 202) {
      const auto body = parse_json_object(answer->body);
      job.sandbox = std::string(body->at("sandbox").as_object().at("id").as_string());
    } else {
      co_await sleep_for(milliseconds(10));
    }
  }
  while (job.removes) {
    auto answer = co_await ask("DELETE", "/v1/sandboxes/" + job.sandbox, remove_key);
    if (answer && answer->status == 202) break;
    EXPECT_TRUE(!answer || answer->status == 503) << answer->body;
    co_await sleep_for(milliseconds(10));
  }
  job.done = true;
}

TEST_F(RunTest, KilledAtAnyMomentNothingIsLostAndNothingIsDoneTwice) {
  fake_.delay = milliseconds(3);
  start();
  ASSERT_TRUE(healthy());
  const std::string key = first_key();
  std::deque<Job> jobs(80);
  const auto call = [&](std::string method, std::string target, std::string idempotency) {
    return ask(std::move(method), std::move(target), key, std::move(idempotency));
  };
  std::size_t begun = 0;
  for (int kill = 0; kill < 16; ++kill) {
    for (int i = 0; i < 5; ++i, ++begun) {
      jobs[begun].removes = begun % 2 == 0;
      spawn(loop_.get_executor(), carry_out(call, jobs[begun]));
    }
    spin(milliseconds(kill * 3));  // from at once to late
    end(SIGKILL);
    start();
    spin(milliseconds(30 + kill * 10));  // sometimes killed before it serves
  }
  ASSERT_TRUE(healthy());
  const auto all_done = [&] { return std::ranges::all_of(jobs, &Job::done); };
  for (int i = 0; i < 2'000 && !all_done(); ++i) spin(milliseconds(10));
  ASSERT_TRUE(all_done());

  std::set<std::string> expected, created;
  for (const Job& job : jobs) {
    EXPECT_TRUE(created.insert(job.sandbox).second);
    if (!job.removes) expected.insert(job.sandbox);
  }
  const auto settled = [&] {
    std::set<std::string> there;
    for (const auto& [id, box] : fake_.boxes) there.insert(id);
    auto answer = run(loop_, ask("GET", "/v1/sandboxes?limit=200", key));
    auto open = run(loop_, ask("GET", "/v1/operations?state=pending,running", key));
    if (!answer || !open) return false;
    std::set<std::string> known;
    const auto sandboxes = parse_json_object(answer->body), operations = parse_json_object(open->body);
    for (const auto& item : sandboxes->at("sandboxes").as_array()) known.insert(std::string(item.at("id").as_string()));
    return there == expected && known == expected && operations->at("operations").as_array().empty();
  };
  bool good = false;
  for (int i = 0; i < 300 && !good; ++i) {
    spin(milliseconds(20));
    good = settled();
  }
  EXPECT_TRUE(good) << fake_.boxes.size() << " at node, " << expected.size() << " expected";
}

}  // namespace
}  // namespace space::api
