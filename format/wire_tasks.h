// What a maintenance request asks for, and the batches that it and streams are about. Private to this room.
#pragma once

#include "quarry/format/wire_requests.h"
#include "wire_bytes.h"

namespace quarry::wire {

void WriteLive(const LiveSpec& spec, schema::LiveSpec::Builder out);
Status ReadLive(schema::LiveSpec::Reader in, LiveSpec& out);
void WriteTask(const MaintenanceTask& task, schema::Maintain::Builder out);
Result<MaintenanceTask> ReadTask(schema::Maintain::Reader in);

}  // namespace quarry::wire
