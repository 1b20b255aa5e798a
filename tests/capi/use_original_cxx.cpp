// The same program in C++: moeflux.h is for both languages.
#include "use_original.c"
