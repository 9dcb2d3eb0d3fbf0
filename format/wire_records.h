// Records that answers of the local protocol list: tables, layouts, counters, sessions, damages, columns. Private
// to this room.
#pragma once

#include "quarry/format/wire_responses.h"
#include "wire_bytes.h"

namespace quarry::wire {

void Write(const TableInfo& table, schema::TableInfo::Builder out);
Status Read(schema::TableInfo::Reader in, TableInfo& out);
void Write(const TopologyInfo& topology, schema::TopologyInfo::Builder out);
Status Read(schema::TopologyInfo::Reader in, TopologyInfo& out);
void Write(const LayoutInfo& layout, schema::LayoutInfo::Builder out);
Status Read(schema::LayoutInfo::Reader in, LayoutInfo& out);
void Write(const EmbeddingInfo& embedding, schema::EmbeddingInfo::Builder out);
Status Read(schema::EmbeddingInfo::Reader in, EmbeddingInfo& out);
void Write(const Counter& counter, schema::Counter::Builder out);
Status Read(schema::Counter::Reader in, Counter& out);
void Write(const SessionStatus& session, schema::SessionStatus::Builder out);
Status Read(schema::SessionStatus::Reader in, SessionStatus& out);
void Write(const StreamStatus& stream, schema::StreamStatus::Builder out);
Status Read(schema::StreamStatus::Reader in, StreamStatus& out);
void Write(const Damage& damage, schema::Damage::Builder out);
Status Read(schema::Damage::Reader in, Damage& out);
void Write(const SqlColumn& column, schema::SqlColumn::Builder out);
Status Read(schema::SqlColumn::Reader in, SqlColumn& out);
void Write(const SqlTable& table, schema::SqlTable::Builder out);
Status Read(schema::SqlTable::Reader in, SqlTable& out);

}  // namespace quarry::wire
