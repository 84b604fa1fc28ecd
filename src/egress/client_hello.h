// The first bytes of a TLS connection, read without trusting them (RFC 8446, 4.1.2 and 5.1; RFC 6066, 3).
//
// The reader takes bytes as they come and says at the earliest moment what the connection is. It never allocates by a length that
// the guest wrote: a ClientHello has at most 16 kB over all its records, and every inner length is checked against what is there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::egress {

struct ClientHello {
  std::string server_name;              // canonical; "" when there was none
  std::vector<std::string> alpn;        // as sent; GREASE values left out
  bool encrypted_client_hello = false;  // an ECH extension that is not GREASE-shaped is refused by the caller
};

class ClientHelloReader {
 public:
  enum class State {
    more,      // not enough bytes yet
    done,      // hello() is there
    not_tls,   // the first byte is no TLS handshake record: some other protocol
    malformed  // TLS-like and wrong: error() says what
  };
  static constexpr std::size_t kLimit = 16 << 10;

  // Adds bytes; a state other than `more` stays. The bytes are not kept for forwarding: the caller has them.
  State feed(std::string_view bytes);
  const ClientHello& hello() const { return hello_; }
  const Error& error() const { return error_; }

 private:
  State refuse(std::string_view why);
  State parse_hello(std::string_view body);
  Result<> parse_extension(unsigned type, std::string_view data);

  std::string records_;    // raw bytes, not yet split into records
  std::string handshake_;  // contents of the handshake records so far
  State state_ = State::more;
  ClientHello hello_;
  Error error_;
};

}  // namespace space::egress
