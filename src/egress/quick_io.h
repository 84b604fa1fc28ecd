// Reading and writing without waiting, on the streams of this folder: plain sockets and TlsStream. A connection that has nothing to
// say then holds no buffer, and one buffer of the worker serves all of them in turn.
#pragma once

#include <span>
#include <string_view>

#include "http/stream.h"

namespace space::egress {

// What is there now; would_block when that is nothing.
http::Transfer read_now(http::Stream& stream, std::span<char> into);
// Returns when read_now has something to say, be it an end or an error.
asio::awaitable<boost::system::error_code> wait_for_data(http::Stream& stream);
// Writes all. When it waits for the first time it has a copy of what is left, so that `bytes` may be used for something else.
asio::awaitable<boost::system::error_code> write_from_shared(http::Stream& stream, std::string_view bytes);

}  // namespace space::egress
