// One checked HTTP/1 request on its way to the upstream, and the answer on its way back: both are framed anew, and a body and an
// answer may flow at the same time.
#pragma once

#include <optional>

#include "egress/credentials.h"
#include "egress/http_request.h"
#include "egress/inflate.h"
#include "egress/upstream.h"
#include "http/body.h"
#include "http/head.h"
#include "http/watchdog.h"

namespace space::egress {

class HttpExchange {
 public:
  struct Outcome {
    std::optional<Refusal> refusal;  // nothing was answered yet: answer this
    bool keep = false;               // both ends are at a request's boundary
    bool cut_off = false;            // the answer began and did not end
    int status = 0;
    std::uint64_t bytes_up = 0, bytes_down = 0;  // of bodies
    std::string note;
  };

  // `stall` cuts the flow when nothing has moved either way for long; it is the connection's, since making one costs every request.
  HttpExchange(Flow& flow, http::Stream& guest, http::InBuffer& guest_in, Upstream& upstream, bool tls, http::Watchdog& stall,
               http::Head& head, CheckedRequest& request);
  asio::awaitable<Outcome> run(const Injection& injection, std::optional<Error> dead);

 private:
  Result<std::string> request_head() const;
  Task<> send_head();
  asio::awaitable<void> upload();
  asio::awaitable<void> respond();
  Task<http::Head> read_answer_head();
  Task<> answer(http::Head answer);
  Task<> copy_body(const http::Head& answer, std::string head, bool chunked);
  asio::awaitable<bool> to_guest(std::string_view head, std::string_view data, bool chunked, bool last);
  asio::awaitable<void> websocket(const http::Head& answer);
  void failed(Error error);

  Flow& flow_;
  http::Stream& guest_;
  http::InBuffer& guest_in_;
  Upstream& upstream_;
  bool tls_;
  http::Head& head_;
  CheckedRequest& request_;
  Scrubber scrubber_;
  std::unique_ptr<Inflater> inflater_;
  http::BodyReader body_;
  http::Watchdog& stall_;
  bool uploaded_ = false, guest_gone_ = false, answered_ = false, heard_ = false, abandon_ = false, drop_upstream_ = false;
  Outcome outcome_;
};

}  // namespace space::egress
