// Asio's TLS is compiled here, apart from the rest of Asio: a program without TLS links neither this nor libssl.
#include <boost/asio/ssl/impl/src.hpp>
