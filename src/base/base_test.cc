#include <fcntl.h>
#include <gtest/gtest.h>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/encoding.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "base/staged_file.h"
#include "base/unix_socket.h"

namespace space {
namespace {

TEST(Ids, AreDnsLabelsAndDoNotRepeat) {
  std::set<std::string> seen;
  for (int i = 0; i < 2000; ++i) {
    const std::string id = new_id();
    EXPECT_TRUE(is_id(id)) << id;
    EXPECT_TRUE(id[0] >= 'a' && id[0] <= 'z') << id;
    EXPECT_TRUE(seen.insert(id).second);
  }
  EXPECT_FALSE(is_id("../../../../etc/passwd-x"));
  EXPECT_FALSE(is_id("abcdefghijklmnopqrs"));
  EXPECT_FALSE(is_id("ABCDEFGHIJKLMNOPQRSTUVWX"));
}

TEST(Encoding, RoundTripsEveryLength) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(base64_decode(base64_encode(as_bytes(bytes))), bytes);
    EXPECT_EQ(base64url_decode(base64url_encode(as_bytes(bytes))), bytes);
    EXPECT_EQ(hex_decode(hex_encode(as_bytes(bytes))), bytes);
    EXPECT_EQ(percent_decode(percent_encode(bytes)), bytes);
    bytes.push_back(static_cast<char>(i * 7));
  }
}

TEST(Encoding, RefusesWhatIsNotCanonical) {
  for (const char* bad : {"a", "ab=c", "ab==c", "QQ=", "QR==", "Q Q=", "QQ==QQ=="}) EXPECT_FALSE(base64_decode(bad)) << bad;
  for (const char* bad : {"%", "%1", "%zz"}) EXPECT_FALSE(percent_decode(bad)) << bad;
  EXPECT_TRUE(is_utf8("grüße €😀"));
  for (const char* bad : {"\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) EXPECT_FALSE(is_utf8(bad));
}

TEST(Digest, MatchesThePublishedVectors) {
  EXPECT_EQ(digest_name(sha256(std::string_view("abc"))), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  // RFC 4231, test case 2.
  EXPECT_EQ(hex_encode(hmac_sha256(as_bytes("Jefe"), as_bytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Json, RefusesAFieldThatStandsTwiceInOneObject) {
  EXPECT_FALSE(parse_json(R"({"a":1,"a":2})"));
  EXPECT_FALSE(parse_json(R"({"x":[{"a":{"b":1,"\u0062":2}}]})"));
  EXPECT_TRUE(parse_json(R"({"a":{"b":1},"b":{"a":1},"c":[{"a":1},{"a":1}]})"));
}

TEST(Json, NamesTheFieldThatIsWrong) {
  auto object = parse_json_object(R"({"name":"x","cpus":99,"extra":1})").value();
  JsonReader wrong(object);
  wrong.text("name", 1, 10);
  wrong.number("cpus", 1, 8);
  EXPECT_EQ(wrong.done().error().message, "cpus must be a whole number from 1 to 8");
  JsonReader unknown(object);
  unknown.text("name", 1, 10);
  unknown.number("cpus", 1, 100);
  EXPECT_EQ(unknown.done().error().message, "extra is not a field of this request");
  EXPECT_EQ(parse_json(std::string(100, '[')).error().code, "json_too_deep");
  EXPECT_FALSE(parse_json("{\"a\":1} x"));
  auto fraction = parse_json_object(R"({"cpus":1.5})").value();
  JsonReader third(fraction);
  third.number("cpus", 1, 8);
  EXPECT_FALSE(third.done());
}

TEST(Files, AStagedFileCountsFromItsPublishOnAndElseLeavesNothing) {
  auto dir = TempDir::make("/tmp", "space-test-").value();
  const auto path = dir.path() / "f";
  ASSERT_TRUE(write_file_durable(path, "one"));
  {
    auto staged = StagedFile::write(path, "two").value();
    EXPECT_EQ(read_file(path, 10).value(), "one");
    EXPECT_EQ(list_directory(dir.path())->size(), 2u);
    auto moved = std::move(staged);
    ASSERT_TRUE(moved.publish());
    EXPECT_EQ(read_file(path, 10).value(), "two");
  }
  { const auto dropped = StagedFile::write(path, "three").value(); }
  EXPECT_EQ(list_directory(dir.path())->size(), 1u);
  EXPECT_EQ(read_file(path, 10).value(), "two");
  EXPECT_EQ(StagedFile::write(dir.path() / "none" / "f", "x").error().kind, ErrorKind::not_found);
}

TEST(Files, DurableWriteReplacesAndLeavesNothingBehind) {
  auto dir = TempDir::make("/tmp", "space-test-").value();
  ASSERT_TRUE(write_file_durable(dir.path() / "f", "one"));
  ASSERT_TRUE(write_file_durable(dir.path() / "f", "two"));
  EXPECT_EQ(read_file(dir.path() / "f", 100), "two");
  EXPECT_EQ(read_file(dir.path() / "f", 2).error().kind, ErrorKind::too_large);
  EXPECT_EQ(list_directory(dir.path()).value(), std::vector<std::string>{"f"});
}

TEST(UnixSocket, HandsOverDescriptors) {
  auto [a, b] = seqpacket_pair().value();
  int pipe_fds[2];
  ASSERT_EQ(::pipe2(pipe_fds, O_CLOEXEC), 0);
  Fd reader(pipe_fds[0]), writer(pipe_fds[1]);
  const int passed[] = {writer.get()};
  ASSERT_TRUE(send_packet(a, as_bytes("take it"), passed));
  auto packet = receive_packet(b, 100).value();
  EXPECT_EQ(packet.bytes, "take it");
  ASSERT_EQ(packet.fds.size(), 1U);
  ASSERT_TRUE(write_all(packet.fds[0], "x"));
  char c;
  EXPECT_EQ(::read(reader.get(), &c, 1), 1);
  ASSERT_TRUE(send_packet(a, as_bytes("longer than the limit")));
  EXPECT_EQ(receive_packet(b, 4).error().code, "packet_too_large");
  a.reset();
  EXPECT_EQ(receive_packet(b, 100).error().code, "peer_closed");
}

TEST(Clock, PrintsRfc3339) {
  EXPECT_EQ(rfc3339(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(rfc3339(1'700'000'000'123), "2023-11-14T22:13:20.123Z");
}

TEST(Files, CopyBetweenFilesystemsKeepsContentAndHoles) {
  auto dir = TempDir::make("/tmp", "space-base-test-");
  ASSERT_TRUE(dir);
  Fd from = *open_file(dir->path() / "from", O_RDWR | O_CREAT);
  const std::string text(300'000, 'x');
  ASSERT_TRUE(pwrite_all(from, as_bytes(text), 1 << 20));
  ASSERT_EQ(::ftruncate(from.get(), 8 << 20), 0);
  const Fd to(::memfd_create("to", MFD_CLOEXEC));  // tmpfs, which shares no way of copying with disk filesystems
  auto copied = copy_file_sparse(from, to);
  ASSERT_TRUE(copied) << describe(copied.error());
  struct stat st = {};
  ASSERT_EQ(::fstat(to.get(), &st), 0);
  EXPECT_EQ(st.st_size, 8 << 20);
  EXPECT_LT(st.st_blocks * 512, 1 << 20);
  std::string back(text.size(), '\0');
  ASSERT_TRUE(pread_all(to, std::as_writable_bytes(std::span(back)), 1 << 20));
  EXPECT_EQ(back, text);
}

}  // namespace
}  // namespace space
