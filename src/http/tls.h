// TLS by OpenSSL 3 for the public side: 1.2 and 1.3 only.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace space::http {

class TlsContext {  // a server's certificate; `reload` swaps it for later connections
 public:
  static Result<std::shared_ptr<TlsContext>> from_files(const std::string& certificate_pem, const std::string& key_pem);
  virtual ~TlsContext() = default;
  virtual Result<> reload() = 0;
};

class TlsClientContext {  // trust of a client; always verifies
 public:
  static Result<std::shared_ptr<TlsClientContext>> make(const std::string& ca_file);  // "": the system's
  virtual ~TlsClientContext() = default;
};

}  // namespace space::http
