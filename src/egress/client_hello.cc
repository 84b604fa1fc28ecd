#include "egress/client_hello.h"

#include <fmt/format.h>
#include <set>

#include "egress/name.h"

namespace space::egress {
namespace {

constexpr unsigned char kHandshakeRecord = 22, kClientHelloMessage = 1;
constexpr unsigned kServerName = 0, kAlpn = 16, kEncryptedClientHello = 0xfe0d;

// Reads big-endian fields off the front; the first short read makes every later one fail.
class Cursor {
 public:
  explicit Cursor(std::string_view data) : data_(data) {}
  unsigned number(std::size_t bytes) {
    unsigned value = 0;
    for (char c : take(bytes)) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }
  std::string_view take(std::size_t bytes) {
    if (bytes > data_.size()) ok_ = false;
    if (!ok_) return {};
    const auto out = data_.substr(0, bytes);
    data_.remove_prefix(bytes);
    return out;
  }
  std::string_view block(std::size_t length_bytes) { return take(number(length_bytes)); }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && data_.empty(); }

 private:
  std::string_view data_;
  bool ok_ = true;
};

bool is_grease(std::string_view value) {  // RFC 8701: 0x?a?a with equal bytes
  return value.size() == 2 && value[0] == value[1] && (value[0] & 0x0f) == 0x0a;
}

}  // namespace

ClientHelloReader::State ClientHelloReader::refuse(std::string_view why) {
  error_ = Error{ErrorKind::invalid_argument, "invalid_client_hello", fmt::format("the TLS ClientHello {}", why),
                 "use a TLS library with its usual settings"};
  return state_ = State::malformed;
}

ClientHelloReader::State ClientHelloReader::feed(std::string_view bytes) {
  if (state_ != State::more) return state_;
  // What is beyond the limit cannot belong to a ClientHello that we accept.
  records_.append(bytes.substr(0, kLimit + 1024 - std::min(records_.size(), kLimit + 1024)));
  while (!records_.empty()) {
    const auto type = static_cast<unsigned char>(records_[0]);
    if (type != kHandshakeRecord) {
      if (!handshake_.empty()) return refuse("is interrupted by a record of another kind");
      return state_ = State::not_tls;
    }
    if (records_.size() >= 2 && static_cast<unsigned char>(records_[1]) != 3) {
      if (!handshake_.empty()) return refuse("has a record of an unknown version");
      return state_ = State::not_tls;
    }
    if (records_.size() < 5) return state_;
    Cursor header(std::string_view(records_).substr(3, 2));
    const std::size_t length = header.number(2);
    if (length == 0) return refuse("has an empty record");
    if (length > kLimit || handshake_.size() + length > kLimit) return refuse("is longer than 16 kB");
    if (records_.size() < 5 + length) return state_;
    handshake_.append(records_, 5, length);
    records_.erase(0, 5 + length);
    if (static_cast<unsigned char>(handshake_[0]) != kClientHelloMessage) return refuse("is another handshake message");
    if (handshake_.size() < 4) continue;
    Cursor message(std::string_view(handshake_).substr(1, 3));
    const std::size_t wanted = message.number(3);
    if (wanted > kLimit) return refuse("is longer than 16 kB");
    if (handshake_.size() < 4 + wanted) continue;
    if (handshake_.size() > 4 + wanted) return refuse("is followed by more in its own record");
    return parse_hello(std::string_view(handshake_).substr(4));
  }
  return state_;
}

ClientHelloReader::State ClientHelloReader::parse_hello(std::string_view body) {
  Cursor cursor(body);
  cursor.number(2);  // legacy_version
  cursor.take(32);   // random
  const auto session = cursor.block(1);
  const auto ciphers = cursor.block(2);
  const auto compression = cursor.block(1);
  if (!cursor.ok() || session.size() > 32 || ciphers.size() < 2 || ciphers.size() % 2 != 0 || compression.empty())
    return refuse("is cut off or malformed");
  if (cursor.at_end()) return state_ = State::done;  // no extensions: TLS 1.2 and older without SNI
  Cursor extensions(cursor.block(2));
  if (!cursor.at_end()) return refuse("has bytes behind its extensions");
  std::set<unsigned> seen;
  while (!extensions.at_end()) {
    const unsigned type = extensions.number(2);
    const auto data = extensions.block(2);
    if (!extensions.ok()) return refuse("has a cut-off extension");
    if (!seen.insert(type).second) return refuse("has an extension twice");
    if (auto parsed = parse_extension(type, data); !parsed) {
      error_ = parsed.error();
      return state_ = State::malformed;
    }
  }
  return state_ = State::done;
}

Result<> ClientHelloReader::parse_extension(unsigned type, std::string_view data) {
  auto wrong = [](std::string_view why) {
    return fail(ErrorKind::invalid_argument, "invalid_client_hello", fmt::format("the TLS ClientHello {}", why));
  };
  if (type == kServerName) {
    Cursor cursor(data);
    Cursor list(cursor.block(2));
    const unsigned kind = list.number(1);
    const auto name = list.block(2);
    if (!cursor.at_end() || !list.at_end() || kind != 0 || name.empty()) return wrong("has a malformed server name");
    auto canonical = canonical_name(name);
    if (!canonical) return wrong("names a server in a form that is no host name");
    hello_.server_name = std::move(*canonical);
  } else if (type == kAlpn) {
    Cursor cursor(data);
    Cursor list(cursor.block(2));
    if (!cursor.at_end()) return wrong("has a malformed protocol list");
    while (!list.at_end()) {
      const auto protocol = list.block(1);
      if (!list.ok() || protocol.empty() || hello_.alpn.size() >= 16) return wrong("has a malformed protocol list");
      if (!is_grease(protocol)) hello_.alpn.emplace_back(protocol);
    }
  } else if (type == kEncryptedClientHello) {
    hello_.encrypted_client_hello = true;
  }
  return {};
}

}  // namespace space::egress
