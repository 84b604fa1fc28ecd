#include "agent/window.h"

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <gtest/gtest.h>

namespace space::agent {
namespace {

using wire::FrameType;

class Window : public ::testing::Test {
 protected:
  std::vector<wire::Frame> read(std::uint64_t after) {
    OutputWindow::Reader reader(window_, loop_.get_executor(), after);
    std::string bytes;
    while (reader.take(bytes, 1 << 30)) {
    }
    return wire::FrameReader().feed(bytes).value();
  }
  void out(std::string_view text) { window_.append(FrameType::stdout_bytes, text); }

  // Frames of their own, of 90 bytes each, until there is no more room.
  void fill() {
    for (int i = 0; i < 200 && window_.has_room(); ++i) more();
  }
  void more() { window_.append(++appended_ % 2 ? FrameType::stdout_bytes : FrameType::stderr_bytes, std::string(90, 'x')); }

  int appended_ = 0;
  const OutputWindow::Time begin_{std::chrono::hours(1)};
  asio::io_context loop_;
  Signal room_{loop_.get_executor()};
  WindowLimits limits_{100, 1000};
  OutputWindow window_{limits_, room_};
};

TEST_F(Window, ReplaysFromAnySequence) {
  window_.append(FrameType::start, wire::encode_u32(7));
  out("a");
  EXPECT_EQ(read(0).size(), 2u);
  out("b");
  window_.append(FrameType::stderr_bytes, "c");
  const auto frames = read(2);
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].payload, "b");
  EXPECT_EQ(frames[1].sequence, 4u);
  EXPECT_TRUE(window_.check(4));
  EXPECT_EQ(window_.check(5).error().code, "outside_window");
}

TEST_F(Window, SmallOutputsThatNobodyHasReadBecomeOneFrame) {
  for (int i = 0; i < 50; ++i) out("x");
  const auto frames = read(0);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].payload, std::string(50, 'x'));
  out("y");
  EXPECT_EQ(read(1).at(0).payload, "y") << "a frame that was handed out does not change";
}

TEST_F(Window, KeepsHeadAndTailAndCountsWhatIsBetween) {
  std::string all;
  for (int i = 0; i < 400; ++i) {
    const std::string part = "line " + std::to_string(i) + " of many that nobody reads;";
    all += part;
    out(part);
    read(window_.last());  // a reader that is up to date: frames stay apart
  }
  window_.append(FrameType::exit, wire::encode_exit({3, 0, false, false}));
  const auto frames = read(0);
  std::string head, tail;
  std::uint64_t dropped = 0, previous = 0;
  for (const auto& frame : frames) {
    EXPECT_GT(frame.sequence, previous);
    previous = frame.sequence;
    if (frame.type == FrameType::dropped) dropped += wire::decode_dropped(frame.payload).value();
    if (frame.type == FrameType::stdout_bytes) (dropped ? tail : head) += frame.payload;
  }
  EXPECT_EQ(head.size(), limits_.head);
  EXPECT_EQ(head + all.substr(head.size(), dropped) + tail, all) << "every byte is there or counted";
  EXPECT_EQ(frames.back().type, FrameType::exit);
  EXPECT_LE(window_.cost(), 3000u);

  EXPECT_TRUE(window_.check(window_.first() - 1));
  EXPECT_FALSE(window_.check(window_.first() - 2)) << "in the gap";
  EXPECT_EQ(read(window_.first() - 1).at(0).sequence, window_.first());
}

TEST_F(Window, NothingLeavesThatAnAttachedReaderStillNeeds) {
  OutputWindow::Reader slow(window_, loop_.get_executor(), 0);
  int appended = 0;
  while (window_.has_room()) {
    out(std::string(90, 'x'));
    ++appended;
    ASSERT_LT(appended, 100);
  }
  EXPECT_EQ(read(0).size(), static_cast<std::size_t>(window_.last())) << "no gap";
  std::string bytes;
  slow.take(bytes, 1 << 20);
  EXPECT_TRUE(window_.has_room());
}

TEST_F(Window, AReaderThatStallsHoldsNothingUpForLong) {
  OutputWindow::Reader stalled(window_, loop_.get_executor(), 0);
  fill();
  for (int s = 0; s < 30; ++s) {
    window_.release_stalled(begin_ + std::chrono::seconds(s));
    ASSERT_FALSE(window_.has_room()) << s;
  }
  window_.release_stalled(begin_ + OutputWindow::kPatienceAlone);
  EXPECT_TRUE(window_.has_room());
  for (int i = 0; i < 20; ++i) more();
  EXPECT_GT(window_.first(), 1u);
  std::string bytes;
  EXPECT_TRUE(stalled.lost());
  EXPECT_FALSE(stalled.take(bytes, 1 << 20));
  EXPECT_EQ(bytes, "") << "no part is given as if it were all";
  EXPECT_LE(window_.cost(), 3000u);
}

TEST_F(Window, AReaderThatComesBackInTimeGoesOn) {
  OutputWindow::Reader late(window_, loop_.get_executor(), 0);
  fill();
  window_.release_all();
  EXPECT_TRUE(window_.has_room());
  EXPECT_FALSE(late.lost()) << "nothing has left";
  std::string bytes;
  while (late.take(bytes, 1 << 20)) {
  }
  EXPECT_EQ(wire::FrameReader().feed(bytes).value().size(), static_cast<std::size_t>(window_.last())) << "no gap";
  fill();
  EXPECT_FALSE(window_.has_room()) << "it holds again what it has not got";
}

TEST_F(Window, AReaderOnASlowLineIsWaitedFor) {
  OutputWindow::Reader slow(window_, loop_.get_executor(), 0);
  fill();
  for (int i = 0; i < 30; ++i) {
    window_.release_stalled(begin_ + i * std::chrono::seconds(29));
    ASSERT_FALSE(window_.has_room()) << i;
    std::string piece;
    ASSERT_TRUE(slow.take(piece, 1)) << i;
    fill();
  }
}

TEST_F(Window, ButNotWhileAnotherHasAllThereIs) {
  OutputWindow::Reader slow(window_, loop_.get_executor(), 0), fast(window_, loop_.get_executor(), 0);
  fill();
  for (int s = 0; s <= 10; ++s) {
    ASSERT_FALSE(window_.has_room()) << s;
    std::string piece;
    while (fast.take(piece, 1 << 20)) {
    }
    ASSERT_TRUE(fast.at_end());
    if (s % 5 == 1) slow.take(piece = "", 1);
    window_.release_stalled(begin_ + std::chrono::seconds(s));
  }
  EXPECT_TRUE(window_.has_room());
  for (int i = 0; i < 20; ++i) more();
  EXPECT_TRUE(slow.lost());
  EXPECT_FALSE(fast.lost());
}

TEST_F(Window, OneThatTakesNothingIsWaitedForLessWhileAnotherHasAllThereIs) {
  OutputWindow::Reader stalled(window_, loop_.get_executor(), 0), fast(window_, loop_.get_executor(), 0);
  fill();
  std::string all;
  while (fast.take(all, 1 << 20)) {
  }
  window_.release_stalled(begin_);
  window_.release_stalled(begin_ + std::chrono::seconds(9));
  EXPECT_FALSE(window_.has_room());
  window_.release_stalled(begin_ + OutputWindow::kPatience);
  EXPECT_TRUE(window_.has_room());
}

TEST_F(Window, AReaderOfThreeKilobytesEachSecondMovesInTime) {
  OutputWindow::Reader slow(window_, loop_.get_executor(), 0);
  limits_ = {100, 1 << 20};
  more();
  while (window_.has_room()) out(std::string(wire::kMaxFramePayload, 'x'));
  std::string batch;
  ASSERT_TRUE(slow.take(batch, OutputWindow::kBatch));
  EXPECT_LT(batch.size(), (3u << 10) * static_cast<std::size_t>(OutputWindow::kPatienceAlone.count()));
}

TEST_F(Window, WithoutReadersThereIsAlwaysRoom) {
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(window_.has_room());
    out(std::string(64, 'x'));
  }
}

}  // namespace
}  // namespace space::agent
