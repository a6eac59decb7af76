// Design a filter through code that OpenAPI Generator makes of the service's document; see ../README.md.

import Foundation
import OpenAPIClient

@main
struct Design {
    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 3 else { fatalError("usage: Design ADDRESS MEASUREMENT.json") }
        let service = OpenAPIClientAPIConfiguration.shared
        service.basePath = arguments[1] + "/v1"
        if let key = ProcessInfo.processInfo.environment["PRIME_API_KEY"] {
            service.customHeaders["Authorization"] = "Bearer \(key)"
        }
        let measurement = try Data(contentsOf: URL(fileURLWithPath: arguments[2]))
        var measured = try JSONDecoder().decode(DesignBody.self, from: measurement)
        measured.k = 1
        let found = try await design(measured)
        guard let prediction = found.prediction else { fatalError("the answer has no prediction") }
        print("predicted noise reduction: \(prediction.meanNoiseReductionDb) dB")
        for warning in found.warnings ?? [] { print("warning: \(warning.code): \(warning.detail)") }
        try JSONEncoder().encode(found).write(to: URL(fileURLWithPath: "control_filter.json"))
    }

    // Upload included, which a phone may need long for.
    static let deadlineMs = 30_000.0

    // A 503, or a proxy's 502 or 504, is over in a moment; nothing is stored, so that repeating is safe.
    static func design(_ measured: DesignBody) async throws -> DesignAnswer {
        for _ in 1...3 {
            do {
                return try await DefaultAPI.refine(designBody: measured, xDeadlineMs: deadlineMs)
            } catch ErrorResponse.error(502...504, _, _, _) {
                try await Task.sleep(nanoseconds: 1_000_000_000)
            }
        }
        return try await DefaultAPI.refine(designBody: measured, xDeadlineMs: deadlineMs)
    }
}
