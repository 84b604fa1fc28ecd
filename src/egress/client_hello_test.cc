#include "egress/client_hello.h"

#include <gtest/gtest.h>

namespace space::egress {
namespace {

using State = ClientHelloReader::State;

std::string u(std::size_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i) & 255));
  return out;
}
std::string extension(unsigned type, const std::string& data) { return u(type, 2) + u(data.size(), 2) + data; }
std::string sni(const std::string& name) {
  const std::string entry = u(0, 1) + u(name.size(), 2) + name;
  return extension(0, u(entry.size(), 2) + entry);
}
std::string message(const std::string& extensions) {
  const std::string body =
      u(0x0303, 2) + std::string(32, 'r') + u(0, 1) + u(2, 2) + u(0x1301, 2) + u(1, 1) + u(0, 1) + u(extensions.size(), 2) + extensions;
  return u(1, 1) + u(body.size(), 3) + body;
}
std::string record(const std::string& content) { return u(22, 1) + u(0x0301, 2) + u(content.size(), 2) + content; }

TEST(ClientHello, IsReadWholeAndByteByByteAndAcrossRecords) {
  const std::string hello = message(sni("API.Example.com") + extension(16, u(12, 2) + "\x02h2\x08http/1.1") + extension(0x2a2a, ""));
  std::string split;
  for (char c : hello) split += record(std::string(1, c));
  for (const std::string& bytes : {record(hello), split}) {
    ClientHelloReader reader;
    State state = State::more;
    for (char c : bytes) {
      EXPECT_EQ(state, State::more);
      state = reader.feed(std::string_view(&c, 1));
    }
    EXPECT_EQ(state, State::done);
    EXPECT_EQ(reader.hello().server_name, "api.example.com");
    EXPECT_EQ(reader.hello().alpn, (std::vector<std::string>{"h2", "http/1.1"}));
  }
}

TEST(ClientHello, OtherProtocolsAreNamedAtTheFirstByte) {
  EXPECT_EQ(ClientHelloReader().feed("GET / HTTP/1.1\r\n"), State::not_tls);
  EXPECT_EQ(ClientHelloReader().feed("SSH-2.0-x\r\n"), State::not_tls);
  EXPECT_EQ(ClientHelloReader().feed(std::string("\x16\x02\x00", 3)), State::not_tls);
}

TEST(ClientHello, RefusesWhatHasTwoMeanings) {
  const std::string good = message(sni("a.test"));
  const std::string bad[] = {
      record(message(sni("a.test") + sni("b.test"))),  // the name twice
      record(message(sni("127.0.0.1"))),
      record(message(sni("a.test:443"))),
      record(message(sni(std::string("a\0b", 3)))),
      record(good + good),                                                   // more in the record
      record(u(2, 1) + u(0, 3)),                                             // a ServerHello
      record(u(1, 1) + u(0xffffff, 3)),                                      // a huge length
      u(22, 1) + u(0x0301, 2) + u(0, 2),                                     // an empty record
      record(good.substr(0, 40)) + u(23, 1) + u(0x0303, 2) + u(1, 2) + "x",  // interrupted
      record(u(1, 1) + u(4, 3) + "abcd"),
  };
  for (const std::string& bytes : bad) EXPECT_EQ(ClientHelloReader().feed(bytes), State::malformed);
  for (std::size_t cut = 1; cut < record(good).size(); ++cut)
    EXPECT_EQ(ClientHelloReader().feed(record(good).substr(0, cut)), State::more) << cut;
}

TEST(ClientHello, TellsOfEncryptedHelloAndOfNoName) {
  ClientHelloReader ech, none;
  EXPECT_EQ(ech.feed(record(message(extension(0xfe0d, "x")))), State::done);
  EXPECT_TRUE(ech.hello().encrypted_client_hello);
  EXPECT_EQ(none.feed(record(message(""))), State::done);
  EXPECT_EQ(none.hello().server_name, "");
}

TEST(ClientHello, KeepsLittleOfAnEndlessOne) {
  ClientHelloReader reader;
  State state = State::more;
  for (int i = 0; i < 1000 && state == State::more; ++i)
    state = reader.feed(record(i == 0 ? u(1, 1) + u(16000, 3) + std::string(900, 'x') : std::string(1000, 'x')));
  EXPECT_EQ(state, State::malformed);
}

}  // namespace
}  // namespace space::egress
