#include "agent/envd_proto.h"

#include <gtest/gtest.h>

namespace space::agent::proto {
namespace {

using namespace std::string_literals;

json::object decoded(std::string_view path, std::string_view bytes) {
  const auto out = decode(*request_of(path), bytes);
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return out.value_or(json::object());
}

TEST(Proto, ReadsAStart) {
  // process {cmd: "/bin/sh" args: "-c" args: "id" envs {A: "b"} cwd: "/"} pty {size {cols: 300}} tag: "t" stdin: false, and field 9, which
  // nobody knows.
  const std::string bytes =
      "\x0a\x1c\x0a\x07/bin/sh\x12\x02-c\x12\x02id\x1a\x06\x0a\x01"
      "A\x12\x01"
      "b\x22\x01/\x12\x05\x0a\x03\x08\xac\x02\x1a\x01t\x20\x00\x48\x05"s;
  const json::value wanted = json::parse(
      R"({"process":{"cmd":"/bin/sh","args":["-c","id"],"envs":{"A":"b"},"cwd":"/"},"pty":{"size":{"cols":300}},"tag":"t","stdin":false})");
  EXPECT_EQ(json::value(decoded("/process.Process/Start", bytes)), wanted);
}

TEST(Proto, ReadsBytesAndSignals) {
  EXPECT_EQ(json::serialize(decoded("/process.Process/SendInput", "\x0a\x02\x08\x07\x12\x04\x0a\x02\x00\xff"s)),
            R"({"process":{"pid":7},"input":{"stdin":"AP8="}})");
  EXPECT_EQ(json::serialize(decoded("/process.Process/SendSignal", "\x0a\x02\x08\x07\x10\x09"s)),
            R"({"process":{"pid":7},"signal":"SIGNAL_SIGKILL"})");
}

TEST(Proto, WritesEvents) {
  const auto written = [](std::string_view path, const char* text) { return encode(*answer_of(path), json::parse(text).get_object()); };
  EXPECT_EQ(written("/process.Process/Start", R"({"event":{"data":{"stdout":"aGkK"}}})"), "\x0a\x07\x12\x05\x0a\x03hi\n"s);
  EXPECT_EQ(written("/process.Process/Start", R"({"event":{"end":{"exitCode":-1,"exited":false,"status":"x"}}})"),
            "\x0a\x09\x1a\x07\x08\x01\x10\x00\x1a\x01x"s);
  EXPECT_EQ(written("/filesystem.Filesystem/Stat",
                    R"({"entry":{"type":"FILE_TYPE_DIRECTORY","size":"300","modifiedTime":"1970-01-01T00:00:01.500Z"}})"),
            "\x0a\x0f\x10\x02\x20\xac\x02\x4a\x08\x08\x01\x10\x80\xca\xb5\xee\x01"s);
  EXPECT_EQ(written("/process.Process/Start", R"({"event":{"keepalive":{}}})"), "\x0a\x02\x22\x00"s);
}

TEST(Proto, RefusesWhatIsMalformed) {
  const Message& start = *request_of("/process.Process/Start");
  for (const std::string& wrong :
       {"\x0a"s, "\x0a\x05x"s, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"s, "\x1a\x01\xff"s, "\x0b"s, "\x00\x00"s, "\x49\x00"s})
    EXPECT_FALSE(decode(start, wrong));
  EXPECT_EQ(request_of("/process.Process/Nothing"), nullptr);
  // A known field of another wire type is skipped, as protobuf's own readers do it.
  EXPECT_TRUE(decode(start, "\x18\x05"s));
}

}  // namespace
}  // namespace space::agent::proto
