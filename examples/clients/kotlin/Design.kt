// Design a filter through code that OpenAPI Generator makes of the service's document; see ../README.md.

import java.io.File
import kotlin.system.exitProcess
import org.openapitools.client.apis.DefaultApi
import org.openapitools.client.infrastructure.ApiClient
import org.openapitools.client.infrastructure.ServerException
import org.openapitools.client.infrastructure.Serializer
import org.openapitools.client.models.DesignAnswer
import org.openapitools.client.models.DesignBody

// Upload included, which a phone may need long for.
const val DEADLINE_MS = 30_000.0

// A 503, or a proxy's 502 or 504, is over in a moment; nothing is stored, so that repeating is safe.
fun design(service: DefaultApi, measured: DesignBody): DesignAnswer {
    repeat(3) {
        try {
            return service.refine(measured, xDeadlineMs = DEADLINE_MS)
        } catch (error: ServerException) {
            if (error.statusCode !in 502..504) throw error
            Thread.sleep(1000)
        }
    }
    return service.refine(measured, xDeadlineMs = DEADLINE_MS)
}

fun main(arguments: Array<String>) {
    if (arguments.size != 2) {
        System.err.println("usage: Design ADDRESS MEASUREMENT.json")
        exitProcess(2)
    }
    ApiClient.accessToken = System.getenv("PRIME_API_KEY")
    val measured = Serializer.gson.fromJson(File(arguments[1]).readText(), DesignBody::class.java).copy(k = 1)
    val found = design(DefaultApi("${arguments[0]}/v1"), measured)
    val prediction = checkNotNull(found.prediction)
    println("predicted noise reduction: %.1f ± %.1f dB".format(prediction.meanNoiseReductionDb, prediction.intervalDb))
    found.warnings?.forEach { System.err.println("warning: ${it.code}: ${it.detail}") }
    File("control_filter.json").writeText(Serializer.gson.toJson(found))
}
