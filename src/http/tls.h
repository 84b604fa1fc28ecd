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

class TlsClientContext {  // trust of a client; always verifies
 public:
  static Result<std::shared_ptr<TlsClientContext>> make(const std::string& ca_file);  // "": the system's
  virtual ~TlsClientContext() = default;
  virtual std::unique_ptr<Stream> wrap(Socket socket, const std::string& host) = 0;  // verifies that the certificate is for `host`
};

}  // namespace space::http
