#include "http/sse.h"

#include <gtest/gtest.h>

namespace space::http {
namespace {

std::string show(const std::vector<SseEvent>& events) {
  std::string text;
  for (const auto& event : events) text += "[" + event.id + "|" + event.event + "|" + event.data + "]";
  return text;
}

std::string read_by(std::string_view text, std::size_t step) {
  SseReader reader;
  std::string seen;
  for (std::size_t at = 0; at < text.size(); at += step) seen += show(reader.feed(text.substr(at, step)).value());
  return seen;
}

TEST(Sse, WritesAndReadsTheSame) {
  std::string text =
      format_sse({"1.5", "stdout", "a\nb\r\nc\rd"}) + format_sse({"", "message", ""}) + ":\n\n" + format_sse({"2", "exit", "{}"});
  for (std::size_t step : {1U, 2U, 7U, 1000U}) EXPECT_EQ(read_by(text, step), "[1.5|stdout|a\nb\nc\nd][|message|][2|exit|{}]") << step;
}

TEST(Sse, ReadsEveryLineEndAndIgnoresTheRest) {
  for (std::size_t step : {1U, 2U, 1000U}) {
    EXPECT_EQ(read_by("\xEF\xBB\xBF"
                      "data: a\r\rdata:b\n\ndata\r\n\r\n",
                      step),
              "[|message|a][|message|b][|message|]");
    EXPECT_EQ(read_by("retry: 5\nunknown: x\nevent: lost\n\ndata:  two\n\n", step), "[|message| two]");
    EXPECT_EQ(read_by("data: not finished", step), "");
  }
}

TEST(Sse, OnlyWholeEventsMoveTheLastId) {
  SseReader reader;
  ASSERT_TRUE(reader.feed("id: 1\ndata: a\n\nid: 2\ndata: b\n"));
  EXPECT_EQ(reader.last_id(), "1");
  ASSERT_TRUE(reader.feed("\n"));
  EXPECT_EQ(reader.last_id(), "2");
}

TEST(Sse, AnEndlessEventIsAnErrorForEver) {
  SseReader line(100);
  EXPECT_EQ(line.feed("data: " + std::string(200, 'x')).error().code, "event_too_large");
  EXPECT_FALSE(line.feed("\n\ndata: ok\n\n"));
  SseReader lines(100);
  Result<std::vector<SseEvent>> last;
  for (int i = 0; i < 100 && last; ++i) last = lines.feed("data: xxxxxxxxx\n");
  EXPECT_EQ(last.error().code, "event_too_large");
}

}  // namespace
}  // namespace space::http
