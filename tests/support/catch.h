#pragma once

// The one place that knows which Catch2 is installed (2.x on Debian 12, 3.x on later systems).
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
