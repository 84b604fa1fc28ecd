// The small parts: errors of a guest, event ids and frames, strand, feed.
#include <gtest/gtest.h>

#include "base/encoding.h"
#include "base/json.h"
#include "node/attach.h"
#include "node/feed.h"
#include "node/guest_error.h"
#include "node/strand.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;

TEST(GuestError, ARefusalPassesAndEverythingElseIsSilence) {
  const Error refusal{ErrorKind::not_found, "file_not_found", "no /x\x1b[31m", "look"};
  const Error passed = guest_error(refusal, "read the file");
  EXPECT_EQ(passed.code, "file_not_found");
  EXPECT_EQ(passed.kind, ErrorKind::not_found);
  EXPECT_EQ(passed.message.find('\x1b'), std::string::npos);
  for (const Error& e : {Error{ErrorKind::internal, "x", "", ""}, Error{ErrorKind::unauthenticated, "no_key", "", ""},
                         Error{ErrorKind::not_found, "sandbox_not_found", "", ""}, Error{ErrorKind::not_found, "Bad Code", "", ""},
                         Error{ErrorKind::deadline_exceeded, "answer_timeout", "", ""}, Error{ErrorKind::gone, "token_expired", "", ""}}) {
    const Error seen = guest_error(e, "read the file");
    EXPECT_EQ(seen.code, "agent_not_answering") << e.code;
    EXPECT_FALSE(seen.next.empty());
  }
}

TEST(GuestError, TextOfAGuestIsBoundedAndPrintable) {
  EXPECT_EQ(printable("a\nb\x01"
                      "c",
                      100),
            "a b c");
  EXPECT_EQ(printable(std::string(1000, 'x'), 10).size(), 10u);
  for (const std::string& bytes :
       {std::string("\xff\xfe"), std::string("\xc3"), std::string("\xe2\x82"), std::string("ok\xf0\x9f\x98\x80\x80")})
    EXPECT_TRUE(is_utf8(printable(bytes, 100)));
  EXPECT_EQ(printable("\xe2\x82\xac", 2), "");
}

TEST(EventIds, AreEpochAndSequence) {
  EXPECT_EQ(parse_position("3.42")->epoch, 3u);
  EXPECT_EQ(parse_position("3.42")->sequence, 42u);
  for (const char* bad : {"", "3", ".", "3.", ".4", "3.4.5", "-1.2", "3. 4", "3.4x", "99999999999999999999.1"})
    EXPECT_FALSE(parse_position(bad)) << bad;
}

TEST(EventText, SaysWhatTheFrameSays) {
  const wire::Frame out{wire::FrameType::stdout_bytes, 7, std::string("\xff\n\0", 3)};
  EXPECT_EQ(*event_text(out, 2), "id: 2.7\nevent: stdout\ndata: {\"data\":\"/woA\"}\n\n");
  const wire::Frame exit{wire::FrameType::exit, 9, wire::encode_exit({-1, 9, true, false})};
  EXPECT_NE(event_text(exit, 1)->find(R"({"code":-1,"signal":9,"timed_out":true,"core_dumped":false})"), std::string::npos);
  const wire::Frame start{wire::FrameType::start, 1, std::string("\x10\x02\0\0", 4)};
  EXPECT_NE(event_text(start, 1)->find(R"({"pid":528})"), std::string::npos);
  const wire::Frame dropped{wire::FrameType::dropped, 4, std::string("\0\1\0\0\0\0\0\0", 8)};
  EXPECT_NE(event_text(dropped, 1)->find(R"({"bytes":256})"), std::string::npos);
  const wire::Frame bad{wire::FrameType::start, 1, "toolong"};
  EXPECT_EQ(event_text(bad, 1).error().code, "agent_protocol_error");
}

TEST(EventText, AWindowIsToldInEventIds) {
  const http::Response answer = outside_window(1, 5, 90);
  EXPECT_EQ(answer.status, 409);
  const auto body = parse_json_object(answer.body).value();
  EXPECT_EQ(body.at("code").as_string(), "outside_window");
  EXPECT_EQ(body.at("first").as_string(), "1.5");
  EXPECT_EQ(body.at("last").as_string(), "1.90");
}

TEST(Strand, AdmitsInOrderAndOneAtATime) {
  asio::io_context loop;
  Strand strand(loop.get_executor());
  std::vector<int> order;
  int inside = 0;
  for (int i = 0; i < 5; ++i) {
    spawn(loop.get_executor(), [](Strand& s, std::vector<int>& seen, int& count, int me) -> asio::awaitable<void> {
      const auto turn = co_await s.enter();
      EXPECT_EQ(++count, 1);
      co_await sleep_for(milliseconds(1));
      --count;
      seen.push_back(me);
    }(strand, order, inside, i));
  }
  loop.run();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_FALSE(strand.busy());
}

TEST(Feed, GivesItemsTimeoutsAndTheErrorAndStopsReading) {
  asio::io_context loop;
  int calls = 0, cancelled = 0;
  spawn(loop.get_executor(), [](asio::io_context& l, int& n, int& c) -> asio::awaitable<void> {
    std::function<Task<int>()> next = [&n]() -> Task<int> {
      co_await sleep_for(milliseconds(n == 1 ? 60 : 1));
      if (n == 2) co_return fail(ErrorKind::unavailable, "over", "");
      co_return ++n;
    };
    Feed<int> feed(l.get_executor(), next, [&c] { ++c; });
    EXPECT_EQ(**co_await feed.next_for(milliseconds(1'000)), 1);
    EXPECT_FALSE((co_await feed.next_for(milliseconds(5))).has_value());
    EXPECT_EQ(**co_await feed.next_for(milliseconds(1'000)), 2);
    EXPECT_EQ((*co_await feed.next_for(milliseconds(1'000))).error().code, "over");
  }(loop, calls, cancelled));
  loop.run();
  EXPECT_EQ(cancelled, 1);
}

}  // namespace
}  // namespace space::node
