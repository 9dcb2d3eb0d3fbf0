// Seconds of processors, not of the clock on the wall: what else runs on the machine changes them little, so they price
// work that is measured while the machine is busy. Thread-safe.
#pragma once

namespace quarry {

// That the calling thread has used, in the system too.
double ThreadProcessorSeconds();
// That all threads of this process have used.
double ProcessProcessorSeconds();

}  // namespace quarry
