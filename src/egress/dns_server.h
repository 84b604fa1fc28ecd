// The DNS that a guest sees: synthetic addresses for names that the policy allows, a refusal for all others. Nothing is forwarded.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "egress/sandbox.h"

namespace space::egress {

// The answer to one message; "" when none is due.
asio::awaitable<std::string> answer_dns(std::shared_ptr<Sandbox> sandbox, std::string message, bool over_udp);

// Answers what waits on the socket, from the address that was asked, at most 64 messages. Once `closed` is true the number `socket` is
// somebody else's, and is not used any more.
asio::awaitable<void> answer_datagrams(std::shared_ptr<Sandbox> sandbox, int socket, const bool& closed);
// Messages with a length in front of each (RFC 7766) until the guest closes or is silent for 10 s; at most 256.
asio::awaitable<void> serve_dns_stream(std::shared_ptr<Sandbox> sandbox, Fd accepted);

}  // namespace space::egress
