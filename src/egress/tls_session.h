// TLS of a guest that ends at the gateway: its ClientHello is judged, the upstream is connected and verified, and what is inside
// is served as HTTP/1 or HTTP/2, whichever both ends speak.
#pragma once

#include <memory>

#include "egress/client_hello.h"
#include "egress/flow.h"

namespace space::egress {

asio::awaitable<void> terminate_tls(Flow& flow, std::unique_ptr<http::Stream> guest, Verdict verdict);

// Does it matter which name passed-on TLS asks for? Where a rule allows the destination by name, and where any name is denied.
bool names_decide(const Destination& to, const Policy& policy);

// Why a ClientHello may not pass unread to a destination, or nullopt. Where a rule allows the destination by name, the server name must
// be that name.
std::optional<std::string> tunnel_refusal(const ClientHello& hello, const Destination& to, const Policy& policy);

}  // namespace space::egress
