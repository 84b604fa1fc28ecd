// TLS by OpenSSL 3 for the public side: 1.2 and 1.3 only. What needs libssl stands in tls.cc and is reached through these
// interfaces alone, so that a program which makes no context (the agent) does not link it.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "http/stream.h"

namespace space::http {

class TlsContext {  // a server's certificate; `reload` swaps it for later connections
 public:
  static Result<std::shared_ptr<TlsContext>> from_files(const std::string& certificate_pem, const std::string& key_pem);
  virtual ~TlsContext() = default;
  virtual Result<> reload() = 0;  // reads the files again; after a failure the old certificate stays
  virtual std::unique_ptr<Stream> wrap(Socket socket) = 0;
};

class TlsClientContext {  // trust of a client
 public:
  static Result<std::shared_ptr<TlsClientContext>> make(const std::string& ca_file);  // "": the system's; always verifies
  // For servers that are known by the way to them and by nothing else, such as a guest's: whatever certificate they show is taken. They
  // may be hostile, so what they can choose is little: ECDHE on common curves, which costs us the same for all. They may end without
  // close_notify, as many do: nobody stands on that way who could cut a body short.
  static Result<std::shared_ptr<TlsClientContext>> make_unverified();
  virtual ~TlsClientContext() = default;
  // Verifies that the certificate is for `host`, with or without a port; unverified, a name is only said (SNI).
  virtual std::unique_ptr<Stream> wrap(Socket socket, const std::string& host) = 0;
};

}  // namespace space::http
