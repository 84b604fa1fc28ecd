#include "wire/agent_protocol.h"

#include <gtest/gtest.h>

namespace space::wire {
namespace {

std::string output(std::uint64_t sequence, std::string payload) {
  return encode_frame({FrameType::stdout_bytes, sequence, std::move(payload)});
}

TEST(Frames, GoThroughWholeWhereverTheBytesAreCut) {
  std::string all = encode_frame({FrameType::start, 1, encode_u32(4321)});
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte.push_back(static_cast<char>(i));
  all += output(2, every_byte) + output(3, "");
  all += encode_frame({FrameType::keepalive, 0, ""});
  all += encode_frame({FrameType::exit, 4, encode_exit({3, 0, false, false})});
  for (const std::size_t piece : {1u, 2u, 3u, 7u, 64u, 4096u}) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < all.size(); at += piece) {
      auto some = reader.feed(std::string_view(all).substr(at, piece));
      ASSERT_TRUE(some) << describe(some.error());
      for (auto& frame : *some) frames.push_back(std::move(frame));
    }
    ASSERT_EQ(frames.size(), 5u);
    EXPECT_EQ(decode_start(frames[0].payload).value(), 4321u);
    EXPECT_EQ(frames[1].payload, every_byte);
    EXPECT_EQ(frames[2].payload, "");
    EXPECT_EQ(frames[3].type, FrameType::keepalive);
    EXPECT_EQ(decode_exit(frames[4].payload).value().code, 3);
  }
}

TEST(Frames, ReaderMayBeginAnywhereAndThenWantsEverySequence) {
  FrameReader reader;
  EXPECT_TRUE(reader.feed(output(77, "a")));
  EXPECT_TRUE(reader.feed(output(78, "b")));
  EXPECT_FALSE(reader.feed(output(80, "d")));
  EXPECT_FALSE(reader.feed(output(79, "c"))) << "a reader that failed stays failed";
}

TEST(Frames, OnlyADroppedFrameMayJump) {
  FrameReader reader;
  EXPECT_TRUE(reader.feed(output(1, "a")));
  auto frames = reader.feed(encode_frame({FrameType::dropped, 90, encode_u64(1u << 30)}) + output(91, "z"));
  ASSERT_TRUE(frames);
  EXPECT_EQ(decode_dropped(frames->front().payload).value(), 1u << 30);
}

TEST(Frames, RefusesWhatAHostileAgentMightSend) {
  const auto refuses = [](std::string bytes) { return !FrameReader().feed(bytes); };
  EXPECT_TRUE(refuses(std::string("\xff\xff\xff\xff", 4))) << "a length of 4 GiB";
  EXPECT_TRUE(refuses(std::string("\x00\x00\x00\x00", 4))) << "a length below its own head";
  EXPECT_TRUE(refuses(output(0, "x"))) << "no sequence";
  EXPECT_TRUE(refuses(output(5, "x") + output(5, "x"))) << "a repeated sequence";
  EXPECT_TRUE(refuses(output(5, "x") + output(4, "x"))) << "a sequence that goes back";
  EXPECT_TRUE(refuses(output(1, std::string(kMaxFramePayload + 1, 'x')))) << "too much payload";
  EXPECT_FALSE(refuses(output(1, std::string(kMaxFramePayload, 'x'))));
  EXPECT_TRUE(refuses(encode_frame({static_cast<FrameType>(0), 1, ""}))) << "type 0";
  EXPECT_TRUE(refuses(encode_frame({static_cast<FrameType>(8), 1, ""}))) << "type 8";
  EXPECT_TRUE(refuses(encode_frame({FrameType::start, 1, "abc"}))) << "a short pid";
  EXPECT_TRUE(refuses(encode_frame({FrameType::keepalive, 1, ""}))) << "a keepalive with a sequence";
  EXPECT_TRUE(refuses(encode_frame({FrameType::exit, 1, encode_exit({})}) + output(2, "x"))) << "a frame after the exit";
}

TEST(Frames, ExitIsAStatusOrASignalNeverBoth) {
  for (const ProcessExit exit : {ProcessExit{0, 0, false, false}, ProcessExit{255, 0, true, false}, ProcessExit{-1, 9, true, false},
                                 ProcessExit{-1, 11, false, true}}) {
    const auto back = decode_exit(encode_exit(exit));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->code, exit.code);
    EXPECT_EQ(back->signal, exit.signal);
    EXPECT_EQ(back->timed_out, exit.timed_out);
    EXPECT_EQ(back->core_dumped, exit.core_dumped);
  }
  EXPECT_FALSE(decode_exit(encode_exit({1, 9, false, false})));
  EXPECT_FALSE(decode_exit(encode_exit({256, 0, false, false})));
  EXPECT_FALSE(decode_exit(encode_exit({-1, 0, false, false})));
  EXPECT_FALSE(decode_exit(encode_exit({-1, 65, false, false})));
  EXPECT_FALSE(decode_exit("12345"));
  EXPECT_FALSE(decode_exit(std::string("\0\0\0\0\0\xf0", 6))) << "unknown flags";
}

}  // namespace
}  // namespace space::wire
