// Boost.Asio and Boost.JSON are compiled here, once (BOOST_ASIO_SEPARATE_COMPILATION), instead of in every source.
#include <boost/asio/impl/src.hpp>
