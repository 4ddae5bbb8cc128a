#pragma once

/// Marks what a shared build of Burin exports; everything else is compiled with hidden visibility.
#define BURIN_API __attribute__((visibility("default")))
