#include "cli/standard_input.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/file.h"
#include "http/router.h"
#include "http/server.h"

namespace space::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kPipe = 64 << 10;

std::string bytes_of(std::size_t count) {
  std::string out(count, '\0');
  std::uint32_t state = 1;
  for (char& byte : out) byte = static_cast<char>((state = state * 1'664'525 + 1'013'904'223) >> 24);
  return out;
}

// A server that takes input for one program, and the client of it, on one loop.
class StandardInputTest : public ::testing::Test {
 protected:
  StandardInputTest() {
    router_.add("POST", "/stdin", [this](http::Exchange& e) { return take(e); });
    server_ = std::make_unique<http::Server>(loop_.get_executor(), [this](http::Exchange& e) { return router_(e); });
    Fd listener = http::listen_tcp("127.0.0.1", 0).value();
    const auto port = http::local_port(listener).value();
    EXPECT_TRUE(server_->serve(std::move(listener)));
    api_ = ApiClient::make(loop_.get_executor(), parse_url("http://127.0.0.1:" + std::to_string(port)).value()).value();
    context_ = std::make_unique<Context>(Context{loop_.get_executor(), *api_, console_, pool_});
  }

  Task<> take(http::Exchange& exchange) {
    CO_TRY(const std::string body, co_await exchange.read_body(4 << 20));
    co_await sleep_for(pause_);
    if (refuses_after_ && sizes_.size() >= *refuses_after_) co_return fail(ErrorKind::conflict, "stdin_closed", "it reads no more");
    const bool known = !keys_.emplace(exchange.headers().get("Idempotency-Key")).second;
    if (!known) {
      taken_ += body;
      sizes_.push_back(body.size());
      if (sizes_.size() == loses_answer_) {
        exchange.abort();
        co_return Result<>();
      }
    }
    closed_ = closed_ || exchange.target().query_value("close") == "1";
    co_return co_await exchange.reply(http::json_response(200, "{}"));
  }

  // Until the program's input is closed, or it takes no more.
  void run(const std::string& content) {
    const Fd file(::memfd_create("input", MFD_CLOEXEC));
    ASSERT_TRUE(write_all(file, content));
    ASSERT_EQ(::lseek(file.get(), 0, SEEK_SET), 0);
    const auto input = std::make_shared<StandardInput>(*context_, "/stdin", file.get());
    input->start();
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (!input->over() && std::chrono::steady_clock::now() < until) loop_.run_one_for(100ms);
    EXPECT_TRUE(input->over()) << "it did not end in time";
    input->stop();
    pool_.join();
  }

  std::chrono::milliseconds pause_{20};
  std::size_t loses_answer_ = 0;  // of the piece with this number, from 1
  std::optional<std::size_t> refuses_after_;
  std::string taken_;
  std::vector<std::size_t> sizes_;
  std::set<std::string> keys_;
  bool closed_ = false;

  http::Router router_;
  asio::io_context loop_{1};
  std::unique_ptr<http::Server> server_;
  std::unique_ptr<ApiClient> api_;
  Console console_{false};
  BlockingPool pool_{2};
  std::unique_ptr<Context> context_;
};

TEST_F(StandardInputTest, EveryByteComesOnceInOrderAndInFewPieces) {
  const std::string content = bytes_of(3'000'000);
  run(content);
  EXPECT_TRUE(taken_ == content) << taken_.size();
  EXPECT_TRUE(closed_);
  EXPECT_LT(sizes_.size(), 2 * content.size() / kPipe / 3) << "pieces grow for a program that keeps up";
}

TEST_F(StandardInputTest, ASlowProgramGetsSmallPieces) {
  pause_ = 300ms;
  const std::string content = bytes_of(200'000);
  run(content);
  EXPECT_TRUE(taken_ == content) << taken_.size();
  EXPECT_TRUE(closed_);
  EXPECT_LE(*std::max_element(sizes_.begin(), sizes_.end()), kPipe);
}

TEST_F(StandardInputTest, APieceWhoseAnswerWasLostIsNotTakenTwice) {
  loses_answer_ = 2;
  const std::string content = bytes_of(500'000);
  run(content);
  EXPECT_TRUE(taken_ == content) << taken_.size();
  EXPECT_TRUE(closed_);
}

TEST_F(StandardInputTest, NothingIsSentToAProgramThatClosedItsInput) {
  refuses_after_ = 1;
  run(bytes_of(1'000'000));
  EXPECT_EQ(sizes_.size(), 1u);
  EXPECT_FALSE(closed_);
}

TEST_F(StandardInputTest, NoInputIsTheEndAtOnce) {
  run("");
  EXPECT_TRUE(closed_);
  EXPECT_EQ(taken_, "");
}

}  // namespace
}  // namespace space::cli
